"""Attention agrees with its equation, written in numpy: one head, one position at a time."""

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

from mecheval.models.mixers.attention import Attention

CASES = at_every_shape(
    (1, {}),
    (4, {}),
    (6, {"heads": 3}),
    (8, {"heads": 2}),
    (8, {"heads": 8}),
    (12, {"heads": 4}),
    (5, {}, {"qkv_proj.weight": 4}),
    (6, {"heads": 2}, {"qkv_proj.weight": 1e-3}),
    (4, {"heads": 2}, {"qkv_proj.weight": 4}),
)


def reference(w, x, heads=1):
    d_model, d_head = x.shape[-1], x.shape[-1] // heads
    y, scores = np.empty_like(x), np.zeros((len(x), heads, x.shape[1], x.shape[1]))
    for b, t in np.ndindex(x.shape[:2]):
        read = np.empty(d_model)
        for h in range(heads):
            rows = np.arange(h * d_head, (h + 1) * d_head)
            q, k, v = (
                w["qkv_proj.weight"][part * d_model + rows] @ x[b, : t + 1].T for part in range(3)
            )
            weight = np.exp(q[:, t] @ k / math.sqrt(d_head))
            scores[b, h, t, : t + 1] = weight / weight.sum()
            read[rows] = v @ scores[b, h, t, : t + 1]
        y[b, t] = w["out_proj.weight"] @ read + w["out_proj.bias"]
    return y, scores


def test_the_output_is_the_equation():
    for case in CASES:
        mixer, x = case.draw(Attention)
        y, scores = reference(numbers(mixer), x.double().numpy(), **case.options)
        assert_agreement(case, mixer, x, y, scores=scores)


def attention_ref(q, k, v):
    """Compute a recurrence over the sources that rescales the softmax for each new one."""
    d_head, time = q.shape[-1], q.shape[1]
    highest, total, read = (
        torch.full_like(q[..., :1], -torch.inf),
        torch.zeros_like(q[..., :1]),
        torch.zeros_like(v),
    )
    for s in range(time):
        logit = (q[:, s:] * k[:, s, None]).sum(dim=-1, keepdim=True) / d_head**0.5
        top = torch.maximum(highest[:, s:], logit)
        old, new = torch.exp(highest[:, s:] - top), torch.exp(logit - top)
        highest[:, s:], total[:, s:] = top, old * total[:, s:] + new
        read[:, s:] = old * read[:, s:] + new * v[:, s, None]
    return read / total


def test_it_equals_the_mixer_built_from_plain_ops():
    assert_built_from({"mixers.attention.causal_attention": attention_ref}, Attention, CASES)


def test_some_cases_attend_uniformly_and_some_to_one_source():
    late = [scores[:, :, 32:] for scores in recorded("scores", Attention, CASES, time=64)]
    assert min(float(scores[:, :, -1].max()) for scores in late) < 1.001 / 64
    assert max(float(scores.max()) for scores in late) > 0.999
