"""Long convolutions: the matrix, the FFT and the plain sum are the same function."""

from itertools import product

import pytest
import torch
from scipy.signal import lfilter
from support.numpy_reference import furthest, in_double, outcome
from torch.autograd import gradcheck

from mecheval.models.ops import gather_reads
from mecheval.models.ops.long_conv import (
    TOEPLITZ_UP_TO,
    fft_conv,
    fft_size,
    long_conv,
    long_conv_ref,
    long_read,
    toeplitz_conv,
)

FORMS = [long_conv, toeplitz_conv, fft_conv]
NEAR_THE_CROSSOVER = [TOEPLITZ_UP_TO - 1, TOEPLITZ_UP_TO, TOEPLITZ_UP_TO + 1]
SHAPES = [*product([1, 3], range(1, 34), [1, 2, 5]), *product([1, 2], NEAR_THE_CROSSOVER, [1, 3])]


def draw_inputs(batch, time, channels, dtype=torch.float64):
    rng = torch.Generator().manual_seed(batch + 10 * time + 1000 * channels)
    return [
        torch.randn(shape, generator=rng, dtype=dtype, requires_grad=True)
        for shape in ((batch, time, channels), (time, channels))
    ]


def test_every_form_has_the_values_and_gradients_of_the_plain_sum():
    for shape in SHAPES:
        double, single = draw_inputs(*shape), draw_inputs(*shape, dtype=torch.float32)
        truth = outcome(long_conv_ref, double)
        truth_of_single = outcome(long_conv_ref, in_double(single))
        for form in FORMS:
            assert furthest(outcome(form, double), truth) < 1e-10, (form, shape)
            assert furthest(outcome(form, single), truth_of_single) < 1e-5, (form, shape)


@pytest.mark.parametrize("time", [68, *NEAR_THE_CROSSOVER, 127, 128, 129, 256, 401])
def test_the_matrix_and_the_fft_are_the_same_function(time):
    inputs, single = draw_inputs(2, time, 3), draw_inputs(2, time, 3, dtype=torch.float32)
    assert furthest(outcome(toeplitz_conv, inputs), outcome(fft_conv, inputs)) < 1e-10
    assert furthest(outcome(toeplitz_conv, single), outcome(fft_conv, single)) < 1e-5


@pytest.mark.parametrize("form", FORMS)
def test_it_is_scipys_filter_in_every_channel(form):
    x, k = (part.detach() for part in draw_inputs(2, 90, 3))
    theirs = [lfilter(k[:, c].numpy(), [1.0], x[:, :, c].numpy(), axis=1) for c in range(3)]
    torch.testing.assert_close(
        form(x, k), torch.stack([torch.tensor(y) for y in theirs], dim=-1), rtol=0, atol=1e-11
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(2, 5, 3), (1, 1, 1), (1, 8, 1)], ids=str)
def test_gradients_are_those_of_finite_differences(form, shape):
    assert gradcheck(form, draw_inputs(*shape))


@pytest.mark.parametrize("form", FORMS)
def test_a_second_derivative_is_an_error(form):
    x, k = draw_inputs(1, 4, 1)
    (gx,) = torch.autograd.grad(form(x, k).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gx.sum().backward()


@pytest.mark.parametrize("changed", [1, 7, 20])
def test_changing_the_future_leaves_the_past_unchanged(changed):
    x, k = draw_inputs(2, 21, 3)
    other = torch.cat([x[:, :changed], x[:, changed:] + 1], dim=1)
    assert torch.equal(long_conv(x, k)[:, :changed], long_conv(other, k)[:, :changed])
    # a spectrum is of all tokens: the future cancels but for rounding
    torch.testing.assert_close(
        fft_conv(x, k)[:, :changed], fft_conv(other, k)[:, :changed], rtol=0, atol=1e-13
    )
    assert not torch.isclose(long_conv(x, k)[:, changed], long_conv(other, k)[:, changed]).any()


@pytest.mark.parametrize("form", FORMS)
def test_an_impulse_as_input_or_filter_returns_the_other(form):
    x, k = (part.detach() for part in draw_inputs(1, 30, 2))
    impulse = torch.eye(30, dtype=torch.float64)[:, :1].expand(30, 2)
    torch.testing.assert_close(form(impulse[None], k)[0], k, rtol=0, atol=1e-14)
    torch.testing.assert_close(form(x, impulse), x, rtol=0, atol=1e-14)


@pytest.mark.parametrize("form", FORMS)
def test_any_layout_in_memory_gives_the_same(form):
    x, k = draw_inputs(4, 6, 5)
    strided = [
        x.detach().permute(2, 0, 1).contiguous().permute(1, 2, 0),
        k.detach().t().contiguous().t(),
    ]
    assert not any(part.is_contiguous() for part in strided)
    assert (
        furthest(
            outcome(form, [s.requires_grad_() for s in strided]), outcome(long_conv_ref, [x, k])
        )
        < 1e-10
    )
    (whole,) = torch.autograd.grad(form(x, k).sum(), x)  # its gradient has strides of 0
    torch.testing.assert_close(
        whole, torch.autograd.grad(long_conv_ref(x, k).sum(), x)[0], rtol=0, atol=1e-12
    )


def test_the_matrix_is_used_up_to_the_crossover_and_the_fft_beyond():
    for time, form in zip(
        NEAR_THE_CROSSOVER, (toeplitz_conv, toeplitz_conv, fft_conv), strict=True
    ):
        x, k = draw_inputs(2, time, 3, dtype=torch.float32)
        assert torch.equal(long_conv(x, k), form(x, k))
        assert not torch.equal(toeplitz_conv(x, k), fft_conv(x, k))


def test_fft_sizes_are_large_enough_with_prime_factors_below_16():
    for least in range(1, 3000):
        size = fft_size(least)
        assert least <= size <= least * 9 / 8
        for prime in (2, 3, 5, 7, 11, 13):
            while size % prime == 0:
                size //= prime
        assert size == 1


@pytest.mark.slow
@pytest.mark.parametrize("reads", [1, 3])
@pytest.mark.parametrize("time", [1, 2, 9, 68, *NEAR_THE_CROSSOVER, 129])
def test_reading_some_positions_has_the_values_and_gradients_of_the_whole(time, reads):
    at = torch.randint(time, (3, reads), generator=torch.Generator().manual_seed(time))
    at[0, 0], at[1, 0] = 0, time - 1  # both ends
    for dtype, most in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        inputs = draw_inputs(3, time, 4, dtype=dtype)
        truth = outcome(lambda x, k: gather_reads(long_conv_ref(x, k), at), in_double(inputs))
        assert furthest(outcome(lambda x, k: long_read(x, k, at), inputs), truth) < most


def test_gradients_of_a_read_are_those_of_finite_differences():
    at = torch.tensor([[4], [0], [2]])
    assert gradcheck(lambda x, k: long_read(x, k, at), draw_inputs(3, 5, 2))
