"""DeltaNet worked out again by its recurrence, its convolutions tap by tap."""

import math

import numpy as np
import pytest
import torch
from by_hand import drawn, error, numbers

from mecheval.models.layers import l2_normalised
from mecheval.models.mixers.delta_net import DeltaNet
from mecheval.models.site import record

SHAPES = [(1, 1), (3, 1), (1, 2), (2, 5), (1, 16), (2, 33), (1, 67), (1, 150)]
OPTIONS = [(4, 1, 4), (4, 1, 0), (6, 3, 1), (8, 2, 2), (8, 2, 0), (12, 3, 3)]
PRECISION = [(torch.float64, 1e-10), (torch.float32, 1e-5)]


def silu(z):
    return z / (1 + np.exp(-z))


def projected(w, x, which, d_conv):
    """silu(conv(W x)) of one document; the last tap is the present token's."""
    z = x @ w[f"{which}_proj.weight"].T
    if not d_conv:
        return silu(z)
    taps = w[f"{which}_conv.weight"][:, 0]
    return silu(
        np.array([sum(taps[:, d_conv - 1 - i] * z[t - i] for i in range(min(d_conv, t + 1))) for t in range(len(z))])
    )


def by_hand(w, x, heads, d_conv):
    d_head = x.shape[-1] // heads
    y, states = np.empty_like(x), np.empty((*x.shape[:2], heads, d_head, d_head))
    for b in range(len(x)):
        q, k, v = (projected(w, x[b], which, d_conv) for which in "qkv")
        S = np.zeros((heads, d_head, d_head))
        for t in range(x.shape[1]):
            read = np.empty(x.shape[-1])
            for h in range(heads):
                part = slice(h * d_head, (h + 1) * d_head)
                key = k[t, part] / math.sqrt(k[t, part] @ k[t, part] + 1e-6)
                query = q[t, part] / math.sqrt(q[t, part] @ q[t, part] + 1e-6) / math.sqrt(d_head)
                beta = 1 / (1 + math.exp(-(w["b_proj.weight"][h] @ x[b, t])))
                S[h] += beta * np.outer(key, v[t, part] - key @ S[h])
                o = query @ S[h]
                read[part] = o / math.sqrt(o @ o / d_head + 1e-5) * w["norm.weight"]
            states[b, t], y[b, t] = S, w["o_proj.weight"] @ read
    return y, states


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION, ids=["float64", "float32"])
@pytest.mark.parametrize(("d_model", "heads", "d_conv"), OPTIONS)
@pytest.mark.parametrize(("batch", "time"), SHAPES)
def test_the_output_is_the_recurrence(batch, time, d_model, heads, d_conv, dtype, tolerance):
    mixer = drawn(DeltaNet(d_model, 128, heads=heads, d_conv=d_conv), dtype)
    x = torch.randn(batch, time, d_model, dtype=dtype)
    y, states = by_hand(numbers(mixer), x.double().numpy(), heads, d_conv)
    assert error(mixer(x), y) <= tolerance
    with record(mixer, ["state"]) as seen:
        assert error(mixer(x), y) <= tolerance, "the output must not depend on who looks"
    assert error(seen["state"], states) <= tolerance


@pytest.mark.parametrize(("d_model", "heads", "d_conv"), [(1, 1, 4), (8, 8, 3)])
@pytest.mark.parametrize(("batch", "time"), SHAPES)
def test_the_output_is_the_recurrence_in_heads_of_one_channel(batch, time, d_model, heads, d_conv):
    # only in float64: their norm divides by √(o² + 1e-5), so that the rounding of a small o grows 300-fold
    mixer = drawn(DeltaNet(d_model, 128, heads=heads, d_conv=d_conv), torch.float64)
    x = torch.randn(batch, time, d_model, dtype=torch.float64)
    assert error(mixer(x), by_hand(numbers(mixer), x.numpy(), heads, d_conv)[0]) <= 1e-10


@pytest.mark.parametrize("heads", [1, 2])
def test_the_memory_reads_what_flas_naive_rule_reads(heads, monkeypatch):
    naive = pytest.importorskip(
        "fla.ops.delta_rule.naive", reason="needs flash-linear-attention and triton", exc_type=ImportError
    )
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)  # it would compute in float32
    mixer = drawn(DeltaNet(8, 128, heads=heads), torch.float64)
    with record(mixer, ["q_conv_out", "k_conv_out", "v_conv_out", "beta", "head_out"]) as seen:
        mixer(torch.randn(2, 67, 8, dtype=torch.float64))
    q, k, v = (seen[f"{which}_conv_out"].unflatten(-1, (heads, -1)).transpose(1, 2) for which in "qkv")
    o, _ = naive.delta_rule_recurrence(l2_normalised(q), l2_normalised(k), v, seen["beta"].transpose(1, 2))
    assert error(seen["head_out"], o.transpose(1, 2).detach().numpy()) <= 1e-10
