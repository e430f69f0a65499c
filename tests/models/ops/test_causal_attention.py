"""Attention equals its equation in values and gradients, and is torch's for long documents."""

import math
from functools import partial

import pytest
import torch
from support.numpy_reference import largest_error
from torch.autograd import gradcheck

from mecheval.models.ops.causal_attention import (
    SHORT,
    attention_at,
    causal_attention,
    causal_attention_ref,
    flash_attention,
)

SHAPES = [(1, 1, 1, 1), (2, 2, 1, 3), (3, 9, 2, 5), (2, 1, 3, 4), (5, 67, 1, 64), (1, SHORT, 4, 16)]


def draw_inputs(shape, dtype=torch.float64, scale=1.0):
    rng = torch.Generator().manual_seed(sum(shape))
    return [
        (scale * torch.randn(shape, generator=rng, dtype=dtype)).requires_grad_() for _ in range(3)
    ]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0])
@pytest.mark.parametrize("window", [0, 1, 4])
def test_it_is_its_equation_in_values_and_gradients(scale, window):
    forms = [partial(form, window=window) for form in (causal_attention, causal_attention_ref)]
    for shape in SHAPES:
        assert largest_error(*forms, draw_inputs(shape, scale=scale)) < 1e-10, shape
        single = draw_inputs(shape, torch.float32, scale)
        assert largest_error(*forms, single, least=1e-3) < 1e-4 * max(1, scale), shape


def test_the_equation_with_a_window_is_the_sum_over_its_tokens():
    q, k, v = (x.detach()[0, :, 0] for x in draw_inputs((1, 9, 1, 4)))
    whole = causal_attention_ref(*(x[None, :, None] for x in (q, k, v)), window=3)[0, :, 0]
    for t in range(9):
        past = slice(max(0, t - 2), t + 1)
        weights = (k[past] @ q[t] / 2).softmax(dim=0)
        torch.testing.assert_close(whole[t], weights @ v[past])


@pytest.mark.parametrize("time", [SHORT + 1, 2 * SHORT, 3 * SHORT + 5])
@pytest.mark.parametrize("window", [1, 3, SHORT, SHORT + 7, 1000])
def test_windows_of_long_documents_are_computed_in_blocks(time, window):
    inputs = draw_inputs((2, time, 2, 4))
    forms = [partial(form, window=window) for form in (causal_attention, causal_attention_ref)]
    assert largest_error(*forms, inputs) < 1e-10


@pytest.mark.parametrize("time", [6, SHORT + 6])
def test_tokens_before_the_window_have_no_effect(time):
    q, k, v = (x.detach() for x in draw_inputs((1, time, 2, 4)))
    before = causal_attention(q, k, v, 2)
    for x in (k, v):
        x[:, 2] *= -1e3
    after = causal_attention(q, k, v, 2)
    assert torch.equal(after[:, 4:], before[:, 4:])
    assert (after[:, 2:4] != before[:, 2:4]).all()


@pytest.mark.parametrize("window", [0, 2, 50])
def test_attention_of_some_tokens_is_that_of_all_there(window):
    q, k, v = draw_inputs((3, 9, 2, 4))
    at = torch.tensor([[8, 0], [3, 3], [1, 5]])
    picked = torch.stack([q[row, at[row]] for row in range(3)])
    whole = causal_attention_ref(q, k, v, window)
    truth = torch.stack([whole[row, at[row]] for row in range(3)])
    torch.testing.assert_close(attention_at(picked, k, v, at, window), truth)


def test_gradients_are_those_of_finite_differences():
    assert gradcheck(causal_attention, draw_inputs((2, 5, 2, 3)))


@pytest.mark.parametrize("time", [SHORT, SHORT + 1])
def test_it_is_torchs_for_long_documents_and_agrees_for_short_ones(time):
    inputs = draw_inputs((2, time, 1, 8))
    ours, theirs = causal_attention(*inputs), flash_attention(*inputs)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    assert torch.equal(ours, theirs) == (time > SHORT)


def test_later_tokens_have_no_effect():
    q, k, v = (x.detach() for x in draw_inputs((2, 9, 2, 4)))
    before = causal_attention(q, k, v)
    for x in (q, k, v):
        x[:, 6:] *= -1e3
    after = causal_attention(q, k, v)
    assert torch.equal(after[:, :6], before[:, :6])
    assert (after[:, 6:] != before[:, 6:]).all()


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_large_and_non_finite_inputs_agree_with_torch(value):
    q, k, v = (x.detach() for x in draw_inputs((1, 4, 1, 2), torch.float32))
    k[0, 1] = value
    torch.testing.assert_close(
        causal_attention(q, k, v), causal_attention_ref(q, k, v), equal_nan=True
    )


def test_any_layout_precision_and_an_empty_batch_are_accepted():
    joined = torch.cat(draw_inputs((2, 6, 2, 4)), dim=2).detach()
    q, k, v = joined.chunk(3, dim=2)
    torch.testing.assert_close(causal_attention(q, k, v), causal_attention_ref(q, k, v))
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    torch.testing.assert_close(causal_attention(q, k, v), causal_attention_ref(q, k, v))
    short = [x.bfloat16() for x in (q, k, v)]
    assert torch.equal(causal_attention(*short), flash_attention(*short))
    assert causal_attention(*draw_inputs((0, 5, 1, 4))).shape == (0, 5, 1, 4)
