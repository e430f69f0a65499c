"""Attention at the read positions equals full attention there, in values and gradients."""

from functools import partial

import pytest
import torch
from support.numpy_reference import largest_error
from torch.autograd import gradcheck

from mecheval.models.ops import gather_reads
from mecheval.models.ops.causal_attention import (
    attention_read,
    attention_read_ref,
    causal_attention_ref,
)

SHAPES = [(1, 1, 1, 1, 1), (2, 9, 1, 5, 1), (3, 7, 2, 4, 2), (2, 5, 5, 6, 3), (32, 67, 1, 64, 1)]


def draw_inputs(shape, dtype=torch.float64, scale=1.0):
    """Draw inputs for a shape (batch, time, reads, channels, heads)."""
    batch, time, reads, channels, _ = shape
    rng = torch.Generator().manual_seed(sum(shape))
    sizes = (batch, time, channels), (3 * channels, channels)
    inputs = [
        (scale * torch.randn(size, generator=rng, dtype=dtype)).requires_grad_() for size in sizes
    ]
    return inputs, torch.randint(time, (batch, reads), generator=rng)


@pytest.mark.parametrize("scale", [1e-2, 0.3, 1.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_equals_full_attention_at_the_read_positions(shape, scale):
    for dtype, error in ((torch.float64, 1e-10), (torch.float32, 1e-3)):
        inputs, at = draw_inputs(shape, dtype, scale)
        forms = (
            partial(form, at=at, heads=shape[-1]) for form in (attention_read, attention_read_ref)
        )
        assert largest_error(*forms, inputs, least=1e-2) < error


def test_gradients_are_those_of_finite_differences():
    inputs, at = draw_inputs((2, 4, 2, 6, 2))
    assert gradcheck(lambda x, weight: attention_read(x, weight, at, 2), inputs)


@pytest.mark.parametrize("read", [attention_read, attention_read_ref])
def test_it_is_the_equation(read):
    (x, weight), at = draw_inputs((3, 8, 2, 6, 2))
    q, k, v = (part.view(3, 8, 2, 3) for part in (x @ weight.t()).chunk(3, dim=-1))
    whole = causal_attention_ref(q, k, v).flatten(start_dim=2)
    torch.testing.assert_close(read(x, weight, at, 2), gather_reads(whole, at))


def test_later_tokens_have_no_effect_and_no_gradient():
    (x, weight), _ = draw_inputs((2, 6, 1, 3, 1))
    at = torch.tensor([[3], [0]])
    later = x.detach().clone()
    later[0, 4:], later[1, 1:] = 1e6, torch.nan
    result = attention_read(x, weight, at, 1)
    assert torch.equal(result, attention_read(later, weight, at, 1))
    (gradient,) = torch.autograd.grad(result.sum(), x)
    assert not gradient[0, 4:].any()
    assert not gradient[1, 1:].any()
    assert gradient[0, :4].any()


def test_a_token_read_twice_has_twice_the_gradient():
    (x, weight), _ = draw_inputs((1, 5, 1, 4, 1))
    once, twice = (
        torch.autograd.grad(attention_read(x, weight, torch.tensor([at]), 1).sum(), x)[0]
        for at in ([3], [3, 3])
    )
    torch.testing.assert_close(twice, 2 * once)


def test_any_layout_precision_and_an_empty_batch_are_accepted():
    (x, weight), at = draw_inputs((3, 7, 2, 4, 2))
    strided = x.transpose(0, 1).contiguous().transpose(0, 1)
    torch.testing.assert_close(
        attention_read(strided, weight, at, 2), attention_read_ref(x, weight, at, 2)
    )
    short = x.bfloat16(), weight.bfloat16()
    assert torch.equal(attention_read(*short, at, 2), attention_read_ref(*short, at, 2))
    assert attention_read(x[:0], weight, at[:0], 2).shape == (0, 2, 4)
