"""Attention with a Taylor feature map φ in place of the exponential:

o_t = Σ_{s≤t} φ(q_t)·φ(k_s) v_s / (Σ_{s≤t} φ(q_t)·φ(k_s) + ε)
φ(x) = [1, x/d^¼, (x⊗x)/√(2d)], so φ(q)·φ(k) = 1 + s + s²/2 with s = q·k/√d
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from mecheval.models.ops import Reads

Features = Float[Tensor, "batch time head d_feature"]
ReadFeatures = Float[Tensor, "batch reads head d_feature"]
Values = Float[Tensor, "batch time head d_head"]
Weights = Float[Tensor, "batch head time source"]

EPSILON = 1e-12


def linear_attention(q: Features, k: Features, v: Values) -> Values:
    """Compute the quadratic form; φ(q)·φ(k) has a closed form, so no feature is stored."""
    weights = mixing_weights(q, k)
    return torch.einsum("bhts,bshd->bthd", weights, v)


def mixing_weights(q: Features, k: Features) -> Weights:
    """Return how much of each v_s is in o_t; rows sum to 1."""
    return _normalise(torch.tril(_similarity(q, k)))


def read_weights(q: ReadFeatures, k: Features, at: Reads) -> Float[Tensor, "batch head reads time"]:
    """Return the mixing weights of some positions only, given q there."""
    future = torch.arange(k.shape[1], device=k.device) > at[:, None, :, None]
    return _normalise(_similarity(q, k).masked_fill(future, 0.0))


def _similarity(q: Tensor, k: Tensor) -> Weights:
    s = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(q.shape[-1])
    return 1 + s + s * s / 2


def _normalise(similarity: Weights) -> Weights:
    return similarity / (similarity.sum(dim=-1, keepdim=True) + EPSILON)


def taylor_features(x: Features) -> Float[Tensor, "batch time head expanded"]:
    d = x.shape[-1]
    second = (x[..., :, None] * x[..., None, :]).flatten(start_dim=-2) / math.sqrt(2 * d)
    return torch.cat([torch.ones_like(x[..., :1]), x / d**0.25, second], dim=-1)


def linear_attention_ref(q: Features, k: Features, v: Values) -> Values:
    """Compute the recurrence over sums of φ(k) v and of φ(k)."""
    fq, fk = taylor_features(q), taylor_features(k)
    kv = torch.zeros(*fk.shape[:1], *fk.shape[2:], v.shape[-1], dtype=v.dtype, device=v.device)
    total, steps = torch.zeros_like(fk[:, 0]), []
    for t in range(q.shape[1]):
        kv = kv + fk[:, t, :, :, None] * v[:, t, :, None, :]
        total = total + fk[:, t]
        read = torch.einsum("bhf,bhfd->bhd", fq[:, t], kv)
        steps.append(read / ((fq[:, t] * total).sum(dim=-1, keepdim=True) + EPSILON))
    return torch.stack(steps, dim=1)
