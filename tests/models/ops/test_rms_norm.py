"""RMSNorm equals its equation and torch's own, in values and gradients."""

import pytest
import torch
from support.numpy_reference import largest_error
from torch.autograd import gradcheck

from mecheval.models.layers import RMSNorm, l2_normalise
from mecheval.models.ops.per_token import rms_norm, rms_norm_ref

SHAPES = [(7,), (64,), (3, 2), (5, 16), (2, 3, 65), (2, 1, 4, 33), (32, 67, 64)]


def draw_inputs(shape, dtype=torch.float64):
    rng = torch.Generator().manual_seed(sum(shape))
    return [
        torch.randn(size, generator=rng, dtype=dtype, requires_grad=True)
        for size in (shape, shape[-1:])
    ]


@pytest.mark.parametrize("eps", [1e-5, 1e-12, 1.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_its_equation_in_values_and_gradients(shape, eps):
    x, weight = draw_inputs(shape)
    assert (
        largest_error(
            lambda *inputs: rms_norm(*inputs, eps), lambda *i: rms_norm_ref(*i, eps), [x, weight]
        )
        < 1e-10
    )
    single = draw_inputs(shape, torch.float32)
    assert (
        largest_error(
            lambda *inputs: rms_norm(*inputs, eps), lambda *i: rms_norm_ref(*i, eps), single
        )
        < 1e-5
    )


def test_gradients_are_those_of_finite_differences():
    assert gradcheck(lambda x, weight: rms_norm(x, weight, 1e-3), draw_inputs((3, 5)))


@pytest.mark.parametrize("shape", SHAPES[2:], ids=str)
def test_the_layer_is_torchs(shape):
    theirs, ours = (
        torch.nn.RMSNorm(shape[-1], eps=1e-5).double(),
        RMSNorm(shape[-1], eps=1e-5).double(),
    )
    assert theirs.state_dict().keys() == ours.state_dict().keys()
    torch.testing.assert_close(
        ours(draw_inputs(shape)[0]), theirs(draw_inputs(shape)[0]), rtol=1e-12, atol=1e-12
    )


def test_empty_zero_and_strided_inputs_are_normalised_too():
    assert rms_norm(torch.zeros(0, 5), torch.ones(5), 1e-5).shape == (0, 5)
    assert not rms_norm(torch.zeros(2, 5), torch.ones(5), 1e-5).any()
    x = torch.randn(6, 4, 5, generator=torch.Generator().manual_seed(0))
    strided = x.transpose(0, 1)
    torch.testing.assert_close(
        rms_norm(strided, torch.ones(5), 0.1), rms_norm_ref(strided, torch.ones(5), 0.1)
    )


def test_an_l2_normalised_vector_has_length_1():
    x = draw_inputs((4, 9))[0]
    torch.testing.assert_close(
        l2_normalise(x).norm(dim=-1), torch.ones(4).double(), rtol=1e-5, atol=0
    )
    torch.testing.assert_close(
        l2_normalise(x, 3.0), 3 * x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()
    )
