"""Attention of single tokens is its equation, in values and gradients, and what attention of all tokens gives there."""

from functools import partial

import pytest
import torch
from by_hand import largest_error
from torch.autograd import gradcheck

from mecheval.models.ops.attention_read import attention_read, attention_read_ref
from mecheval.models.ops.causal_attention import causal_attention_ref

SHAPES = [(1, 1, 1, 1, 1), (1, 2, 9, 1, 5), (2, 3, 7, 2, 4), (3, 2, 5, 5, 3), (1, 32, 67, 1, 64)]  # head … channel


def drawn(shape, dtype=torch.float64, scale=1.0):
    head, batch, time, reads, channel = shape
    rng = torch.Generator().manual_seed(sum(shape))
    q, x = (
        (scale * torch.randn(size, generator=rng, dtype=dtype)).requires_grad_()
        for size in ((head, batch, reads, channel), (batch, time, channel))
    )
    return [q, x], torch.randint(time, (batch, reads), generator=rng)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_its_equation_in_values_and_gradients(shape, scale):
    for dtype, error in ((torch.float64, 1e-10), (torch.float32, 1e-4 * max(1, scale))):
        inputs, at = drawn(shape, dtype, scale)
        forms = (partial(form, at=at, scale=0.3) for form in (attention_read, attention_read_ref))
        assert largest_error(*forms, inputs, least=1e-3) < error


def test_its_derivative_is_that_of_finite_differences():
    inputs, at = drawn((2, 2, 4, 2, 3))
    assert gradcheck(lambda q, x: attention_read(q, x, at, 0.5), inputs)


@pytest.mark.parametrize("read", [attention_read, attention_read_ref])
def test_it_is_attention_of_all_tokens_where_it_is_read(read):
    (_, x), at = drawn((1, 3, 8, 2, 4))
    asked = x.gather(1, at[..., None].expand(-1, -1, 4))
    whole = causal_attention_ref(*(x[:, :, None] for _ in range(3)))[:, :, 0]
    found = read(asked[None], x, at, 0.5)[0]
    torch.testing.assert_close(found, whole.gather(1, at[..., None].expand(-1, -1, 4)))


def test_nothing_of_what_comes_later_is_seen_or_moved():
    (q, x), _ = drawn((1, 2, 6, 1, 3))
    at = torch.tensor([[3], [0]])
    later = x.detach().clone()
    later[0, 4:], later[1, 1:] = 1e6, torch.nan
    found = attention_read(q, x, at, 1.0)
    assert torch.equal(found, attention_read(q, later, at, 1.0))
    (gradient,) = torch.autograd.grad(found.sum(), x)
    assert not gradient[0, 4:].any()
    assert not gradient[1, 1:].any()
    assert gradient[0, :4].any()


def test_any_layout_and_precision_is_taken_and_nothing_too():
    (q, x), at = drawn((2, 3, 7, 2, 4))
    strewn = x.transpose(0, 1).contiguous().transpose(0, 1)
    torch.testing.assert_close(attention_read(q, strewn, at, 0.5), attention_read_ref(q, x, at, 0.5))
    short = q.bfloat16(), x.bfloat16()
    assert torch.equal(attention_read(*short, at, 0.5), attention_read_ref(*short, at, 0.5))
    assert attention_read(q[:, :0], x[:0], at[:0], 0.5).shape == (2, 0, 2, 4)
