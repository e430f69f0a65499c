"""The short convolution equals its plain twin and torch's, and is causal."""

import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from support.numpy_reference import largest_error
from torch.autograd import gradcheck, gradgradcheck

from mecheval.models.ops.short_conv import (
    short_conv,
    short_conv_ref,
    short_conv_silu,
    short_conv_silu_ref,
)

SHAPES = list(product([1, 3], [1, 2, 3, 5, 8, 17], [1, 4, 7], [1, 2, 3, 4, 9], [True, False]))
WIDE = [(2, 67, 64, 4, True), (2, 67, 65, 3, False)]


def draw_inputs(batch, time, channels, width, bias, dtype=torch.float64):
    rng = torch.Generator().manual_seed(batch + 10 * time + 1000 * channels + 10_000 * width)
    shapes = [(batch, time, channels), (channels, width), (channels,)][: 3 if bias else 2]
    return [torch.randn(shape, generator=rng, dtype=dtype, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize(
    ("form", "twin", "shapes"),
    [
        (short_conv, short_conv_ref, SHAPES),
        (short_conv_silu, short_conv_silu_ref, [*SHAPES, *WIDE]),
    ],
)
def test_it_has_the_values_and_gradients_of_its_plain_twin(form, twin, shapes):
    for shape in shapes:
        assert largest_error(form, twin, draw_inputs(*shape)) < 1e-10, shape
        single = draw_inputs(*shape, dtype=torch.float32)
        assert largest_error(form, twin, single) < 1e-5, shape


@pytest.mark.parametrize("value", [200.0, -200.0, 1e30, -1e30, math.inf, -math.inf, math.nan])
def test_silu_of_large_and_non_finite_inputs_is_torchs(value):
    x, weight = torch.full((1, 1, 20), value), torch.ones(20, 1)
    torch.testing.assert_close(short_conv_silu(x, weight), F.silu(x), equal_nan=True)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5])
def test_nan_reaches_as_far_as_the_taps(width):
    x = torch.ones(1, 9, 20)
    x[0, 2] = math.nan
    result = short_conv_silu(x, torch.ones(20, width))[0].isnan().any(dim=-1)
    assert result.nonzero().flatten().tolist() == list(range(2, 2 + width))


def test_other_precisions_and_empty_batches_are_silu_of_the_convolution():
    x, weight, bias = draw_inputs(2, 5, 3, 4, True, dtype=torch.bfloat16)
    torch.testing.assert_close(
        short_conv_silu(x, weight, bias), F.silu(short_conv(x, weight, bias))
    )
    assert short_conv_silu(torch.zeros(0, 5, 3), torch.ones(3, 2)).shape == (0, 5, 3)


def test_some_kernels_are_wider_than_the_sequence():
    assert any(width > time for _, time, _, width, _ in SHAPES)


@pytest.mark.parametrize(("time", "width"), [(1, 4), (68, 4), (5, 9)])
def test_it_is_torchs_convolution_of_the_padded_stream(time, width):
    x, weight, bias = draw_inputs(2, time, 3, width, True)
    theirs = F.conv1d(F.pad(x.mT, (width - 1, 0)), weight[:, None], bias, groups=3).mT
    torch.testing.assert_close(short_conv(x, weight, bias), theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 5, 3, 4, True), (1, 2, 1, 4, False)], ids=str)
def test_first_and_second_derivatives_are_those_of_finite_differences(shape):
    assert gradcheck(short_conv, draw_inputs(*shape))
    assert gradgradcheck(short_conv, draw_inputs(*shape))


@pytest.mark.parametrize("changed", [1, 4, 8])
def test_changing_the_future_leaves_the_past_unchanged(changed):
    x, weight, bias = draw_inputs(2, 9, 3, 4, True)
    other = torch.cat([x[:, :changed], x[:, changed:] + 1], dim=1)
    y, z = short_conv(x, weight, bias), short_conv(other, weight, bias)
    assert torch.equal(y[:, :changed], z[:, :changed])
    assert not torch.isclose(y[:, changed], z[:, changed]).any()


def test_the_last_tap_is_on_the_present_and_the_first_reaches_furthest_back():
    x = torch.zeros(1, 6, 1)
    x[0, 1] = 1
    y = short_conv(x, torch.tensor([[4.0, 3.0, 2.0, 1.0]]))
    assert y.flatten().tolist() == [0, 1, 2, 3, 4, 0]


def test_any_layout_in_memory_gives_the_same():
    x, weight, bias = draw_inputs(4, 6, 5, 3, True)
    strided = [
        x.detach().permute(2, 0, 1).contiguous().permute(1, 2, 0),
        weight.detach().t().contiguous().t(),
        bias,
    ]
    assert not strided[0].is_contiguous()
    assert (
        largest_error(short_conv, short_conv_ref, [s.detach().requires_grad_() for s in strided])
        < 1e-10
    )
    (whole,) = torch.autograd.grad(
        short_conv(x, weight, bias).sum(), x
    )  # its gradient has strides of 0
    (plain,) = torch.autograd.grad(short_conv_ref(x, weight, bias).sum(), x)
    torch.testing.assert_close(whole, plain, rtol=1e-12, atol=1e-12)
