"""GLA, RetNet and HGRN2 in numpy: step by step, and as a sum over all pairs of tokens."""

import math

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


def gla_recurrence(w, x, heads=1, d_conv=0, decay="channel", tau=16.0, **_):
    """Compute the outputs and the memory of the equations at the top of the mixer's file."""
    outputs, memories = [], []
    for document in x:
        parts = {}
        for which in "qkv":
            z = document @ w[f"{which}_proj.weight"].T
            if d_conv:
                z = silu(convolve(z, w[f"{which}_conv.weight"][:, 0, ::-1].T))
            parts[which] = z.reshape(len(document), heads, -1)
        kept = np.ones((len(document), heads, 1))
        if decay == "constant":
            kept = kept - 2.0 ** -(5 + np.arange(heads))[:, None]
        elif decay != "none":
            z = document @ w["gk_proj.0.weight"].T @ w["gk_proj.1.weight"].T + w["gk_proj.1.bias"]
            kept = (sigmoid(z) ** (1 / tau)).reshape(len(document), heads, -1)
        o, states = step_by_step(*parts.values(), np.broadcast_to(kept, parts["k"].shape))
        if "o_norm.weight" in w:
            o = rms_normalised(o, w["o_norm.weight"])
        o = o.reshape(len(document), -1)
        if "g_proj.weight" in w:
            o = o * silu(document @ w["g_proj.weight"].T)
        outputs.append(o @ w["o_proj.weight"].T)
        memories.append(states)
    return np.stack(outputs), np.stack(memories)


def gla_over_pairs(p, x, heads=1, decay="channel", tau=16.0, **_):
    """Compute the output as a sum over all pairs of tokens, from weights by fla's names."""
    q, k, v = (projected(p, x, which, heads) for which in "qkv")
    log_w = np.zeros((*x.shape[:2], heads, 1))
    if decay == "constant":
        log_w = log_w + np.log(1 - 0.5 ** (5.0 + np.arange(heads)))[:, None]
    elif decay != "none":
        z = (x @ p["gk_proj.0.weight"].T) @ p["gk_proj.1.weight"].T + p["gk_proj.1.bias"]
        log_w = (log_sigmoid(z) / tau).reshape(*x.shape[:2], heads, -1)
    return gated_output(p, over_all_pairs(q, k, v, log_w), x)


def turned(z):
    """Turn the pairs (i, i + d/2) of one document's queries or keys by t · 10000^(−2i/d)."""
    half = z.shape[2] // 2
    result = np.empty_like(z)
    for t in range(len(z)):
        for i in range(half):
            angle = t * 10000.0 ** (-i / half)
            matrix = np.array(
                [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
            )
            result[t, :, [i, i + half]] = matrix @ z[t][:, [i, i + half]].T
    return result


def retnet_recurrence(w, x, heads=1, d_conv=0, decay=True, rotary=True, **_):
    """Compute the outputs and the memory of the equations at the top of the mixer's file."""
    outputs, memories = [], []
    for document in x:
        parts = {}
        for which in "qkv":
            z = document @ w[f"{which}_proj.weight"].T
            if d_conv:
                z = silu(convolve(z, w[f"{which}_conv.weight"][:, 0, ::-1].T))
            z = z.reshape(len(document), heads, -1)
            parts[which] = turned(z) if rotary and which in "qk" else z
        kept = np.array([1 - 2.0 ** (-5 - h) if decay else 1.0 for h in range(heads)])
        kept = np.broadcast_to(kept[:, None], parts["k"].shape)
        o, states = step_by_step(*parts.values(), kept)
        if "o_norm.weight" in w:
            o = rms_normalised(o, w["o_norm.weight"])
        o = o.reshape(len(document), -1)
        if "g_proj.weight" in w:
            o = o * silu(document @ w["g_proj.weight"].T)
        outputs.append(o @ w["o_proj.weight"].T)
        memories.append(states)
    return np.stack(outputs), np.stack(memories)


def retention(p, x, heads=1, decay=True, rotary=True, **_):
    """Compute (Q Kᵀ ∘ D) V, D_nm = γ^(n−m) for n ≥ m, with Θ_n = e^(inθ) as complex numbers."""
    q, k, v = (projected(p, x, which, heads) for which in "qkv")
    n = np.arange(x.shape[1])
    if rotary:
        half = q.shape[3] // 2
        theta = 10000.0 ** -(np.arange(half) / half)
        turn = np.exp(1j * n[:, None] * theta)[:, None]
        q, k = (z[..., :half] + 1j * z[..., half:] for z in (q, k))
        q, k = q * turn, (k * turn).conj()
    gamma = 1 - np.exp2(-5.0 - np.arange(heads)) if decay else np.ones(heads)
    distance = n[:, None] - n
    D = np.where(distance >= 0, gamma[:, None, None] ** np.maximum(distance, 0), 0)
    scores = np.einsum("bnhi,bmhi->bhnm", q, k).real * D
    scores /= math.sqrt(p["q_proj.weight"].shape[0] // heads)
    return gated_output(p, np.einsum("bhnm,bmhv->bnhv", scores, v), x)


def hgrn2_recurrence(w, x, heads=1, d_conv=0, decay=True, lower_bound=0.0, **_):
    """Compute the outputs and the memory of the equations at the top of the mixer's file."""
    outputs, memories = [], []
    for document in x:
        parts = {}
        for which in "qfi":
            z = document @ w[f"{which}_proj.weight"].T
            if d_conv:
                z = convolve(z, w[f"{which}_conv.weight"][:, 0, ::-1].T)
            parts[which] = z.reshape(len(document), heads, -1)
        f = lower_bound + (1 - lower_bound) * sigmoid(parts["f"])
        kept = f if decay else np.ones_like(f)
        o, states = step_by_step(silu(parts["q"]), 1 - f, parts["i"], kept)
        o = o.reshape(len(document), -1)
        if "g_norm.weight" in w:
            o = rms_normalised(o, w["g_norm.weight"])
        outputs.append(o @ w["o_proj.weight"].T)
        memories.append(states)
    return np.stack(outputs), np.stack(memories)


def hgrn2_over_pairs(p, x, heads=1, decay=True, lower_bound=0.0, **_):
    """Compute the output as a sum over all pairs of tokens, from weights by fla's names.

    With g = log f as fla has it, the logarithm of a sum of exponentials, and keys 1 − exp(g).
    """
    z = {which: x @ p[f"{which}_proj.weight"].T for which in "qfi"}
    for which in "qfi":
        if f"{which}_conv1d.weight" in p:
            rows = [convolved(row, p[f"{which}_conv1d.weight"]) for row in z[which]]
            z[which] = np.stack(rows)
    g = -np.logaddexp(0, -z["f"])
    if lower_bound:
        g = np.logaddexp(np.log(lower_bound), np.log1p(-lower_bound) + g)
    q, k, v, g = (
        part.reshape(*x.shape[:2], heads, -1) for part in (silu(z["q"]), -np.expm1(g), z["i"], g)
    )
    o = over_all_pairs(q, k, v, g if decay else 0 * g).reshape(x.shape)
    return (rms_normalised(o, p["g_norm.weight"]) if "g_norm.weight" in p else o) @ p[
        "o_proj.weight"
    ].T
