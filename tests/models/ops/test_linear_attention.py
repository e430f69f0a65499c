"""Linear attention: its quadratic form, its recurrence and its weights agree."""

import math
from itertools import product

import pytest
import torch
from support.numpy_reference import largest_error
from torch.autograd import gradcheck, gradgradcheck

from mecheval.models.ops.linear_attention import (
    linear_attention,
    linear_attention_ref,
    mixing_weights,
    taylor_features,
)

SHAPES = list(product([1, 3], [1, 2, 3, 5, 8, 13], [1, 2, 3], [1, 2, 5], [1, 4]))


def draw_inputs(batch, time, heads, d_feature, d_head, dtype=torch.float64, scale=1.0):
    rng = torch.Generator().manual_seed(batch + 10 * time + 1000 * heads + 10_000 * d_feature)
    shapes = [(batch, time, heads, d) for d in (d_feature, d_feature, d_head)]
    return [(scale * torch.randn(s, generator=rng, dtype=dtype)).requires_grad_() for s in shapes]


def error(inputs):
    """Return the error relative to at least 0.1: the first token's q and k have no gradient."""
    return largest_error(linear_attention, linear_attention_ref, inputs, least=0.1)


def test_the_quadratic_view_has_the_values_and_gradients_of_the_recurrence():
    for shape in SHAPES:
        assert error(draw_inputs(*shape)) < 1e-10, shape
        assert error(draw_inputs(*shape, dtype=torch.float32)) < 1e-5, shape


@pytest.mark.parametrize("scale", [0.0, 1e-3, 30.0])
def test_zero_and_very_large_queries_and_keys_agree_as_well(scale):
    for dtype, most in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        inputs = draw_inputs(2, 68, 2, 16, 8, dtype, scale)
        assert error(inputs) < most


def test_gradients_are_those_of_finite_differences():
    for shape in ((2, 4, 2, 3, 2), (1, 1, 1, 1, 1)):
        assert gradcheck(linear_attention, draw_inputs(*shape))
        assert gradgradcheck(linear_attention, draw_inputs(*shape))


@pytest.mark.parametrize("d", [1, 2, 16, 64])
def test_the_inner_product_of_features_is_a_taylor_series(d):
    q, k, _ = draw_inputs(2, 7, 2, d, 1)
    s = (q * k).sum(dim=-1) / math.sqrt(d)
    torch.testing.assert_close(
        (taylor_features(q) * taylor_features(k)).sum(dim=-1), 1 + s + s**2 / 2
    )
    assert taylor_features(q).shape[-1] == 1 + d + d**2


def test_the_weights_are_causal_and_their_rows_sum_to_one():
    q, k, _ = draw_inputs(2, 9, 3, 4, 1, scale=3.0)
    weights = mixing_weights(q, k)
    torch.testing.assert_close(
        weights.sum(dim=-1), torch.ones(2, 3, 9, dtype=torch.float64), rtol=0, atol=1e-11
    )
    assert torch.equal(weights, weights.tril())
    assert (weights[..., torch.ones(9, 9).tril().bool()] > 0).all()  # since 1 + s + s²/2 ≥ ½


def test_the_weights_reproduce_the_output():
    q, k, v = draw_inputs(2, 9, 3, 4, 5)
    by_hand = torch.stack([mixing_weights(q, k)[:, h] @ v[:, :, h] for h in range(3)], dim=2)
    torch.testing.assert_close(by_hand, linear_attention_ref(q, k, v), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(by_hand, linear_attention(q, k, v), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("changed", [1, 5, 8])
def test_changing_the_future_leaves_the_past_unchanged(which, changed):
    inputs = draw_inputs(2, 9, 2, 3, 4)
    other = list(inputs)
    other[which] = torch.cat([inputs[which][:, :changed], inputs[which][:, changed:] + 1], dim=1)
    y, z = linear_attention(*inputs), linear_attention(*other)
    assert torch.equal(y[:, :changed], z[:, :changed])
    assert not torch.isclose(y[:, changed], z[:, changed]).all(dim=-1).any()


def test_with_zero_queries_it_is_the_mean_of_the_past():
    _, k, v = draw_inputs(1, 6, 1, 3, 2)
    means = v.cumsum(dim=1) / torch.arange(1, 7)[:, None, None]
    torch.testing.assert_close(linear_attention(torch.zeros_like(k), k, v), means)
