"""Based's linear attention worked out again: every feature written down, every sum carried on from token to token."""

import math

import numpy as np
import pytest
import torch
from by_hand import drawn, error, numbers

from mecheval.models.mixers.linear_attention import LinearAttention
from mecheval.models.site import record

SHAPES = [(1, 1), (3, 1), (1, 2), (2, 5), (1, 16), (2, 33)]
WIDTHS = [(4, 1, 1), (4, 8, 1), (6, 3, 3), (8, 8, 2), (8, 5, 8), (12, 16, 4)]
PRECISION = [(torch.float64, 1e-10), (torch.float32, 1e-5)]


def taylor(z):
    """exp(q·k/√d) ≈ φ(q)·φ(k): 1, then d^−¼ z_i, then z_i z_j / √2 √d for all pairs."""
    d = len(z)
    first = [z[i] / d**0.25 for i in range(d)]
    second = [z[i] * z[j] / (math.sqrt(2) * math.sqrt(d)) for i in range(d) for j in range(d)]
    return np.array([1.0, *first, *second])


def by_hand(w, x, feature_dim, heads):
    d_model, d_head = x.shape[-1], x.shape[-1] // heads
    y = np.empty_like(x)
    for b in range(len(x)):
        memory, norm = [0] * heads, [0] * heads
        for t in range(x.shape[1]):
            read = np.empty(d_model)
            for h in range(heads):
                features = slice(h * feature_dim, (h + 1) * feature_dim)
                values = slice(h * d_head, (h + 1) * d_head)
                q, k = (taylor(w[f"{name}.weight"][features] @ x[b, t]) for name in ("q_proj", "k_proj"))
                memory[h] = memory[h] + np.outer(k, w["v_proj.weight"][values] @ x[b, t])
                norm[h] = norm[h] + k
                read[values] = q @ memory[h] / (q @ norm[h] + 1e-12)
            y[b, t] = w["o_proj.weight"] @ read
    return y


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION, ids=["float64", "float32"])
@pytest.mark.parametrize(("d_model", "feature_dim", "heads"), WIDTHS)
@pytest.mark.parametrize(("batch", "time"), SHAPES)
def test_the_output_is_the_recurrence_over_features(batch, time, d_model, feature_dim, heads, dtype, tolerance):
    mixer = drawn(LinearAttention(d_model, 64, feature_dim=feature_dim, heads=heads), dtype)
    x = torch.randn(batch, time, d_model, dtype=dtype)
    truth = by_hand(numbers(mixer), x.double().numpy(), feature_dim, heads)
    assert error(mixer(x), truth) <= tolerance
    with record(mixer, ["scores"]):
        assert error(mixer(x), truth) <= tolerance, "the output must not depend on who looks"
