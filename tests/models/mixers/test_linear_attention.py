"""Based's linear attention agrees with numpy: explicit features, sums carried over tokens."""

import math

import numpy as np
import torch
from support.numpy_reference import (
    assert_agreement,
    assert_built_from,
    at_every_shape,
    numbers,
    recorded,
)

from mecheval.models.mixers.linear_attention import LinearAttention
from mecheval.models.ops.linear_attention import linear_attention_ref

CASES = at_every_shape(
    (4, {"feature_dim": 1}),
    (1, {}),
    (4, {}),
    (6, {"feature_dim": 3, "heads": 3}),
    (8, {"heads": 2}),
    (8, {"feature_dim": 5, "heads": 8}),
    (12, {"feature_dim": 16, "heads": 4}),
    (6, {"heads": 2}, {"q_proj.weight": 30, "k_proj.weight": 30}),
    (6, {"heads": 2}, {"q_proj.weight": 1e-4}),
)


def taylor(z):
    """Return φ(z), where exp(q·k/√d) ≈ φ(q)·φ(k): 1, d^−¼ z_i, z_i z_j / √2 √d."""
    d = len(z)
    return np.array([1, *(z / d**0.25), *(np.outer(z, z).ravel() / (math.sqrt(2) * math.sqrt(d)))])


def reference(w, x, feature_dim=8, heads=1):
    batch, time, d_model = x.shape
    d_head = d_model // heads
    y, scores = np.empty_like(x), np.zeros((batch, heads, time, time))
    for b in range(batch):
        memory, norm, keys = [0] * heads, [0] * heads, [[] for _ in range(heads)]
        for t in range(time):
            read = np.empty(d_model)
            for h in range(heads):
                features = slice(h * feature_dim, (h + 1) * feature_dim)
                values = slice(h * d_head, (h + 1) * d_head)
                q, k = (
                    taylor(w[f"{name}.weight"][features] @ x[b, t]) for name in ("q_proj", "k_proj")
                )
                memory[h] = memory[h] + np.outer(k, w["v_proj.weight"][values] @ x[b, t])
                norm[h] = norm[h] + k
                keys[h].append(k)
                read[values] = q @ memory[h] / (q @ norm[h] + 1e-12)
                scores[b, h, t, : t + 1] = keys[h] @ q / (q @ norm[h] + 1e-12)
            y[b, t] = w["o_proj.weight"] @ read
    return y, scores


def test_the_output_is_the_recurrence_over_features():
    for case in CASES:
        mixer, x = case.draw(LinearAttention)
        y, scores = reference(numbers(mixer), x.double().numpy(), **case.options)
        assert_agreement(case, mixer, x, y, scores=scores)


def mixing_weights_ref(q, k):
    """Return what the recurrence reads of one-hot values."""
    time, heads = q.shape[1:3]
    one_hot = torch.eye(time, dtype=q.dtype)[:, None].expand(len(q), time, heads, time)
    return linear_attention_ref(q, k, one_hot).transpose(1, 2)


def test_it_equals_the_mixer_built_from_plain_ops():
    assert_built_from(
        {"mixers.linear_attention.mixing_weights": mixing_weights_ref}, LinearAttention, CASES
    )


def test_some_cases_have_tiny_queries_and_some_huge_ones():
    queries = [float(q.abs().max()) for q in recorded("query", LinearAttention, CASES)]
    assert min(queries) < 1e-3
    assert max(queries) > 30
