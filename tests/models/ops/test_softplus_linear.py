"""softplus(W x + b) equals its equation and torch's own, in values and gradients."""

import math

import pytest
import torch
import torch.nn.functional as F
from support.numpy_reference import largest_error

from mecheval.models.ops.per_token import FEW, softplus_linear, softplus_linear_ref

SHAPES = [
    (1, 1, 1, 1),
    (2, 3, 4, 7),
    (3, 5, 1, 65),
    (2, 67, 4, 128),
    (2, 2, FEW, 16),
    (1, 3, FEW + 1, 16),
]


def draw_inputs(batch, time, inputs, channels, scale=3.0, dtype=torch.float64):
    rng = torch.Generator().manual_seed(batch + time + inputs + channels)
    shapes = (batch, time, inputs), (channels, inputs), (channels,)
    return [
        (scale * torch.randn(shape, generator=rng, dtype=dtype)).requires_grad_()
        for shape in shapes
    ]


@pytest.mark.parametrize("scale", [0.1, 3.0, 30.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_its_equation_in_values_and_gradients(shape, scale):
    def equation(x, weight, bias):
        return torch.logaddexp(
            x @ weight.T + bias, torch.zeros(()).double()
        )  # torch's own stops at 20

    if shape[2] <= FEW:
        assert largest_error(softplus_linear, equation, draw_inputs(*shape, scale)) < 1e-10
    assert (
        largest_error(
            softplus_linear, softplus_linear_ref, draw_inputs(*shape, scale, torch.float32)
        )
        < 1e-4
    )


@pytest.mark.parametrize(
    "value", [0.0, -0.0, 19.0, 21.0, 90.0, -20.0, -80.0, 1e30, math.inf, math.nan]
)
def test_tiny_large_and_non_finite_inputs_agree_with_torch(value):
    bias = torch.full((20,), value)
    result = softplus_linear(torch.zeros(1, 1, 1), torch.ones(20, 1), bias)[0, 0]
    torch.testing.assert_close(result, F.softplus(bias), rtol=1e-6, atol=1e-37, equal_nan=True)


def test_strided_and_empty_inputs_are_accepted():
    x, weight, bias = draw_inputs(2, 3, 4, 7)
    wide = torch.cat([x, x], dim=-1)
    torch.testing.assert_close(
        softplus_linear(wide[..., :4], weight, bias), softplus_linear_ref(x, weight, bias)
    )
    assert softplus_linear(torch.zeros(0, 3, 4), torch.ones(7, 4), torch.ones(7)).shape == (0, 3, 7)
