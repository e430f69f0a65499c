"""The gate equals its equation in values and gradients, also for non-finite inputs."""

import math

import pytest
import torch
import torch.nn.functional as F
from support.numpy_reference import largest_error

from mecheval.models.ops.per_token import silu_gate, silu_gate_ref


def draw_inputs(*shape, dtype=torch.float64):
    rng = torch.Generator().manual_seed(sum(shape))
    return [(5 * torch.randn(shape, generator=rng, dtype=dtype)).requires_grad_() for _ in range(2)]


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 7), (3, 67, 128)], ids=str)
def test_it_is_its_equation_in_values_and_gradients(shape):
    assert largest_error(silu_gate, silu_gate_ref, draw_inputs(*shape)) < 1e-12
    assert largest_error(silu_gate, silu_gate_ref, draw_inputs(*shape, dtype=torch.float32)) < 1e-5


def test_gradients_are_those_of_finite_differences():
    assert torch.autograd.gradcheck(silu_gate, draw_inputs(2, 3, 5))


@pytest.mark.parametrize("value", [0.0, 90.0, -90.0, 1e30, -1e30, math.inf, math.nan])
def test_large_and_non_finite_inputs_agree_with_torch(value):
    z = torch.full((1, 1, 20), value)
    torch.testing.assert_close(silu_gate(torch.ones_like(z), z), F.silu(z), equal_nan=True)


def test_any_layout_precision_and_an_empty_batch_are_accepted():
    y, z = draw_inputs(2, 6, 4)
    torch.testing.assert_close(silu_gate(y.mT.contiguous().mT, z), silu_gate_ref(y, z))
    short = [tensor.bfloat16() for tensor in (y, z)]
    assert torch.equal(silu_gate(*short), silu_gate_ref(*short))
    assert silu_gate(*draw_inputs(0, 5, 4)).shape == (0, 5, 4)
