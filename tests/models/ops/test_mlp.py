"""The MLP equals its equation in values and gradients, and its GELU is torch's."""

import math

import pytest
import torch
import torch.nn.functional as F
from support.numpy_reference import largest_error
from torch.autograd import gradcheck

from mecheval.models.ops.per_token import mlp, mlp_ref

SHAPES = [(1, 1), (3, 2), (2, 3, 7), (32, 1, 64), (5, 67, 16)]


def draw_inputs(shape, dtype=torch.float64, scale=1.0):
    rng = torch.Generator().manual_seed(sum(shape))
    d_model, hidden = shape[-1], 4 * shape[-1]
    sizes = [shape, (hidden, d_model), (hidden,), (d_model, hidden), (d_model,)]
    return [
        (scale * torch.randn(size, generator=rng, dtype=dtype)).requires_grad_() for size in sizes
    ]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 3.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_its_equation_in_values_and_gradients(shape, scale):
    assert largest_error(mlp, mlp_ref, draw_inputs(shape, scale=scale)) < 1e-10
    assert largest_error(mlp, mlp_ref, draw_inputs(shape, torch.float32, scale), least=1e-6) < 1e-4


def test_gradients_are_those_of_finite_differences():
    assert gradcheck(mlp, draw_inputs((2, 3, 2)))


def gelu(x):
    """Compute GELU of single numbers by the op: both products are by 1."""
    one, zero = x.new_ones(1, 1), x.new_zeros(1)
    return mlp(x[:, None], one, zero, one, zero)[:, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gelu_and_its_slope_are_as_exact_as_torchs(dtype):
    given = torch.linspace(-12, 12, 100_001, dtype=dtype).requires_grad_()
    result, x = gelu(given), given.detach().double()
    (gradient,) = torch.autograd.grad(result.sum(), given)
    slope = 0.5 * torch.erfc(-x * math.sqrt(0.5)) + x * torch.exp(-x.square() / 2) / math.sqrt(
        2 * math.pi
    )
    bound = (
        5e-7 if dtype == torch.float32 else 1e-14
    )  # half a unit in the last place of 12 is 4.8e-7
    assert (result.double() - F.gelu(x)).abs().max() < bound
    assert (gradient.double() - slope).abs().max() < bound


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, 0.0),
        (90.0, 90.0),
        (-90.0, -0.0),
        (1e30, 1e30),
        (math.inf, math.inf),
        (math.nan, math.nan),
    ],
)
def test_large_and_non_finite_inputs_agree_with_the_definition(value, expected):
    """torch's own gives NaN for infinity on some processors with AVX-512."""
    x = torch.full((9,), value)
    truth = torch.full((9,), expected)
    torch.testing.assert_close(gelu(x), truth, equal_nan=True, rtol=1e-6, atol=1e-30)


def test_it_is_the_same_without_gradients():
    inputs = draw_inputs((4, 5), torch.float32)
    with torch.no_grad():
        alone = mlp(*inputs)
    assert torch.equal(alone, mlp(*inputs))


def test_any_layout_precision_and_an_empty_batch_are_accepted():
    x, *weights = draw_inputs((4, 6, 5))
    strided = x.transpose(0, 1)
    torch.testing.assert_close(mlp(strided, *weights), mlp_ref(strided, *weights))
    short = [tensor.detach().bfloat16() for tensor in (x, *weights)]
    assert torch.equal(mlp(*short), mlp_ref(*short))
    assert mlp(x[:0], *weights).shape == (0, 6, 5)
