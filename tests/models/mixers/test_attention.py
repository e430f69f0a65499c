"""Attention worked out again from its equation: one head, one position at a time."""

import math

import numpy as np
import pytest
import torch
from by_hand import drawn, error, numbers

from mecheval.models.mixers.attention import Attention
from mecheval.models.site import record

SHAPES = [(1, 1), (3, 1), (1, 2), (2, 5), (1, 16), (2, 33)]
WIDTHS = [(1, 1), (4, 1), (6, 3), (8, 2), (8, 8), (12, 4)]
PRECISION = [(torch.float64, 1e-10), (torch.float32, 1e-5)]


def by_hand(w, x, heads):
    d_model, d_head = x.shape[-1], x.shape[-1] // heads
    y, scores = np.empty_like(x), np.zeros((len(x), heads, x.shape[1], x.shape[1]))
    for b, t in np.ndindex(x.shape[:2]):
        read = np.empty(d_model)
        for h in range(heads):
            rows = np.arange(h * d_head, (h + 1) * d_head)
            q, k, v = (w["qkv_proj.weight"][part * d_model + rows] @ x[b, : t + 1].T for part in range(3))
            weight = np.array([math.exp(q[:, t] @ k[:, s] / math.sqrt(d_head)) for s in range(t + 1)])
            scores[b, h, t, : t + 1] = weight / weight.sum()
            read[rows] = v @ scores[b, h, t, : t + 1]
        y[b, t] = w["out_proj.weight"] @ read + w["out_proj.bias"]
    return y, scores


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION, ids=["float64", "float32"])
@pytest.mark.parametrize(("d_model", "heads"), WIDTHS)
@pytest.mark.parametrize(("batch", "time"), SHAPES)
def test_every_head_reads_what_the_equation_says(batch, time, d_model, heads, dtype, tolerance):
    mixer = drawn(Attention(d_model, 64, heads=heads), dtype)
    x = torch.randn(batch, time, d_model, dtype=dtype)
    y, scores = by_hand(numbers(mixer), x.double().numpy(), heads)
    assert error(mixer(x), y) <= tolerance
    with record(mixer, ["scores"]) as seen:
        assert error(mixer(x), y) <= tolerance, "the output must not depend on who looks"
    assert error(seen["scores"], scores) <= tolerance
