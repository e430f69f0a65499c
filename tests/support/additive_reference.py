"""A memory that decays and adds, in numpy: step by step, and as a sum over all pairs of tokens."""

import numpy as np
import torch

from mecheval.models.edits import zero
from mecheval.models.site import patch, record
from support.mixer_variants import table
from support.numpy_reference import convolve, numbers, silu
from support.task_facts import relative_error

EPS = 1e-5


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def log_sigmoid(z):
    return -np.logaddexp(0, -z)


def rms_normalised(o, weight):
    return weight * o / np.sqrt((o * o).mean(-1, keepdims=True) + EPS)


def convolved(z, weight):
    """Convolve one document; the last tap is on the present token."""
    return convolve(z, weight[:, 0, ::-1].T)


def step_by_step(q, k, v, w):
    """Return what is read from S_t = Diag(w_t) S_{t−1} + k_t v_tᵀ, and S, of one document."""
    S, read, states = np.zeros((*k.shape[1:], v.shape[2])), [], []
    for q_t, k_t, v_t, w_t in zip(q, k, v, w, strict=True):
        S = w_t[..., None] * S + k_t[..., None] * v_t[:, None, :]
        read.append(np.einsum("hk,hkv->hv", q_t, S) / np.sqrt(k.shape[2]))
        states.append(S)
    return np.stack(read), np.stack(states)


def over_all_pairs(q, k, v, log_w):
    """Return o_t = Σ_{s ≤ t} Σ_i q_ti k_si exp(Σ_{s < r ≤ t} log w_ri) v_s of a whole batch.

    It is the parallel form of GLA (§4.1); axes are batch, time, head and channel.
    """
    sums = np.cumsum(np.broadcast_to(log_w, k.shape), axis=1)
    between = sums[:, :, None] - sums[:, None]  # batch, to, from, head, channel
    past = np.tri(k.shape[1])[:, :, None, None]
    kept = np.exp(np.where(past, between, 0)) * past
    scores = np.einsum("bthi,bshi,btshi->bths", q, k, kept) / np.sqrt(k.shape[3])
    return np.einsum("bths,bshv->bthv", scores, v)


def published(name, mixer):
    """Return the weights by their published names in docs/weights.md."""
    ours = numbers(mixer)
    return {row[1]: ours[row[0]] for row in table(name) if row[0] in ours}


def gated_output(p, o, x):
    """Return what fla's GLA and RetNet add to the stream x, given what is read."""
    if "g_norm_swish_gate.weight" in p:
        o = rms_normalised(o, p["g_norm_swish_gate.weight"])
    o = o.reshape(*x.shape[:-1], -1)
    gate = silu(x @ p["g_proj.weight"].T) if "g_proj.weight" in p else 1
    return (o * gate) @ p["o_proj.weight"].T


def projected(p, x, which, heads):
    """Return fla's queries, keys or values of a batch, with silu only behind a convolution."""
    z = x @ p[f"{which}_proj.weight"].T
    if f"{which}_conv1d.weight" in p:
        z = silu(np.stack([convolved(row, p[f"{which}_conv1d.weight"]) for row in z]))
    return z.reshape(*x.shape[:-1], heads, -1)


@torch.no_grad()
def assert_mixing_is_what_is_read(mixer, x):
    """Compare the weights of all pairs of tokens times the values with what the heads read."""
    with record(mixer, ["head_out"]) as seen:
        mixer(x)
    weights, values = mixer.mixing(x)
    assert relative_error(torch.einsum("bhts,bshd->bthd", weights, values), seen["head_out"]) <= (
        1e-12
    )
    assert (weights.triu(1) == 0).all(), "it sees the future"


@torch.no_grad()
def assert_an_emptied_memory_begins_anew(mixer, x, after):
    """Empty the memory after a token: what follows is as if the document began behind it."""
    with patch(mixer, {"state": zero(torch.full((len(x),), after))}):
        emptied = mixer(x)
    assert torch.allclose(emptied[:, :after], mixer(x)[:, :after], rtol=1e-12, atol=1e-12)
    assert relative_error(emptied[:, after + 1 :], mixer(x[:, after + 1 :])) <= 1e-10
    assert relative_error(mixer(x)[:, after + 1 :], mixer(x[:, after + 1 :])) > 1e-3
