"""Attention worked out again from its equation: one head, one position at a time."""

import math

import numpy as np
import torch
from support.numpy_reference import (
    assert_agreement,
    assert_built_from,
    assert_enough,
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


def by_hand(w, x, heads=1):
    d_model, d_head = x.shape[-1], x.shape[-1] // heads
    y, scores = np.empty_like(x), np.zeros((len(x), heads, x.shape[1], x.shape[1]))
    for b, t in np.ndindex(x.shape[:2]):
        read = np.empty(d_model)
        for h in range(heads):
            rows = np.arange(h * d_head, (h + 1) * d_head)
            q, k, v = (w["qkv_proj.weight"][part * d_model + rows] @ x[b, : t + 1].T for part in range(3))
            weight = np.exp(q[:, t] @ k / math.sqrt(d_head))
            scores[b, h, t, : t + 1] = weight / weight.sum()
            read[rows] = v @ scores[b, h, t, : t + 1]
        y[b, t] = w["out_proj.weight"] @ read + w["out_proj.bias"]
    return y, scores


def test_every_head_reads_what_the_equation_says():
    for case in CASES:
        mixer, x = case.drawn(Attention)
        y, scores = by_hand(numbers(mixer), x.double().numpy(), **case.options)
        assert_agreement(case, mixer, x, y, scores=scores)


def attention_ref(q, k, v):
    """By a recurrence over the sources: a softmax that sees one more of them is the old one, weighed anew."""
    d_head, time = q.shape[-1], q.shape[1]
    highest, total, read = torch.full_like(q[..., :1], -torch.inf), torch.zeros_like(q[..., :1]), torch.zeros_like(v)
    for s in range(time):
        logit = (q[:, s:] * k[:, s, None]).sum(dim=-1, keepdim=True) / d_head**0.5
        top = torch.maximum(highest[:, s:], logit)
        old, new = torch.exp(highest[:, s:] - top), torch.exp(logit - top)
        highest[:, s:], total[:, s:] = top, old * total[:, s:] + new
        read[:, s:] = old * read[:, s:] + new * v[:, s, None]
    return read / total


def test_it_is_the_mixer_of_plain_operations():
    assert_built_from({"mixers.attention.causal_attention": attention_ref}, Attention, CASES)


def test_there_are_enough_cases_and_some_look_everywhere_alike_and_some_at_one_place():
    assert_enough(CASES)
    late = [scores[:, :, 32:] for scores in recorded("scores", Attention, CASES, time=64)]
    assert min(float(scores[:, :, -1].max()) for scores in late) < 1.001 / 64
    assert max(float(scores.max()) for scores in late) > 0.999
