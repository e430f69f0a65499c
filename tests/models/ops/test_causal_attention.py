"""Attention by whole products is its equation, in values and gradients, and torch's own where documents are long."""

import math

import pytest
import torch
from support.numpy_reference import largest_error
from torch.autograd import gradcheck

from mecheval.models.ops.causal_attention import SHORT, causal_attention, causal_attention_ref, flash_attention

SHAPES = [(1, 1, 1, 1), (2, 2, 1, 3), (3, 9, 2, 5), (2, 1, 3, 4), (5, 67, 1, 64), (1, SHORT, 4, 16)]


def drawn(shape, dtype=torch.float64, scale=1.0):
    rng = torch.Generator().manual_seed(sum(shape))
    return [(scale * torch.randn(shape, generator=rng, dtype=dtype)).requires_grad_() for _ in range(3)]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_its_equation_in_values_and_gradients(shape, scale):
    assert largest_error(causal_attention, causal_attention_ref, drawn(shape, scale=scale)) < 1e-10
    single = drawn(shape, torch.float32, scale)
    assert largest_error(causal_attention, causal_attention_ref, single, least=1e-3) < 1e-4 * max(1, scale)


def test_its_derivative_is_that_of_finite_differences():
    assert gradcheck(causal_attention, drawn((2, 5, 2, 3)))


@pytest.mark.parametrize("time", [SHORT, SHORT + 1])
def test_of_long_documents_it_is_torch_s_and_of_short_ones_agrees_with_it(time):
    inputs = drawn((2, time, 1, 8))
    ours, theirs = causal_attention(*inputs), flash_attention(*inputs)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    assert torch.equal(ours, theirs) == (time > SHORT)


def test_nothing_of_what_comes_later_is_seen():
    q, k, v = (x.detach() for x in drawn((2, 9, 2, 4)))
    before = causal_attention(q, k, v)
    for x in (q, k, v):
        x[:, 6:] *= -1e3
    after = causal_attention(q, k, v)
    assert torch.equal(after[:, :6], before[:, :6])
    assert (after[:, 6:] != before[:, 6:]).all()


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_of_what_is_large_or_no_number_it_is_torch_s(value):
    q, k, v = (x.detach() for x in drawn((1, 4, 1, 2), torch.float32))
    k[0, 1] = value
    torch.testing.assert_close(causal_attention(q, k, v), causal_attention_ref(q, k, v), equal_nan=True)


def test_any_layout_and_precision_is_taken_and_nothing_too():
    joined = torch.cat(drawn((2, 6, 2, 4)), dim=2).detach()
    q, k, v = joined.chunk(3, dim=2)
    torch.testing.assert_close(causal_attention(q, k, v), causal_attention_ref(q, k, v))
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    torch.testing.assert_close(causal_attention(q, k, v), causal_attention_ref(q, k, v))
    short = [x.bfloat16() for x in (q, k, v)]
    assert torch.equal(causal_attention(*short), flash_attention(*short))
    assert causal_attention(*drawn((0, 5, 1, 4))).shape == (0, 5, 1, 4)
