"""Filters of state space models equal their recurrences; those of positions are as published."""

import math
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.signal import cont2discrete
from support.numpy_reference import furthest, in_double, largest_error, outcome
from torch.autograd import gradcheck

from mecheval.models.ops import filters
from mecheval.models.ops.filters import (
    DIRECT_UP_TO,
    decay_rates,
    diagonal_filter,
    diagonal_filter_ref,
    position_features,
    shift_filter,
    shift_filter_ref,
)
from mecheval.models.ops.long_conv import long_conv

TIMES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 68]
SHIFTS = list(product([1, 3], [1, 2, 3, 4, 7, 8, 16, 33], TIMES))
DIAGONALS = list(product([1, 3], [1, 2, 5], TIMES, [1e-4, 1e-2, 1.0, 10.0, None]))


@pytest.fixture
def no_kernels(monkeypatch):
    """Compute without kernels, as on another device."""
    monkeypatch.setattr(filters, "not_compiled", lambda *inputs: "elsewhere")


@pytest.fixture(params=["compiled", "torch"])
def either(request):
    """Run the test with kernels and without."""
    if request.param == "torch":
        request.getfixturevalue("no_kernels")


def draw_shift(channels, d_state, dtype=torch.float64):
    rng = torch.Generator().manual_seed(channels + 100 * d_state)
    return [
        torch.randn(channels, d_state, generator=rng, dtype=dtype, requires_grad=True) for _ in "BC"
    ]


def draw_diagonal(channels, pairs, step=None, dtype=torch.float64):
    """Draw poles near S4D-Lin's; without a step, step sizes as H3 draws them."""
    rng = torch.Generator().manual_seed(channels + 10 * pairs)
    dt = torch.exp(
        math.log(1e-3) + math.log(100) * torch.rand(channels, generator=rng, dtype=dtype)
    )
    off = torch.rand(channels, pairs, generator=rng, dtype=dtype)
    A = torch.complex(-0.5 - off / 10, math.pi * (torch.arange(pairs) + off))
    BC = torch.complex(*torch.randn(2, channels, pairs, generator=rng, dtype=dtype))
    return [x.requires_grad_() for x in (dt if step is None else torch.full_like(dt, step), A, BC)]


def error(form, inputs, time):
    """Return the largest error, with four sums: with one, a channel's gradient may cancel."""
    twin = {shift_filter: shift_filter_ref, diagonal_filter: diagonal_filter_ref}[form]
    return largest_error(partial(form, time=time), partial(twin, time=time), inputs, sums=4)


def assert_shifts_agree(shapes):
    for *sizes, time in shapes:
        double, single = draw_shift(*sizes), draw_shift(*sizes, dtype=torch.float32)
        assert error(shift_filter, double, time) < 1e-10, (*sizes, time)
        assert error(shift_filter, single, time) < 1e-5, (*sizes, time)


def assert_diagonals_agree(shapes):
    for channels, pairs, time, step in shapes:
        double = draw_diagonal(channels, pairs, step)
        single = draw_diagonal(channels, pairs, step, torch.float32)
        assert error(diagonal_filter, double, time) < 1e-10, (channels, pairs, time, step)
        assert error(diagonal_filter, single, time) < 1e-5, (channels, pairs, time, step)


def test_a_shift_filter_has_the_values_and_gradients_of_its_recurrence():
    assert_shifts_agree(SHIFTS)


@pytest.mark.slow
def test_a_diagonal_filter_has_the_values_and_gradients_of_its_recurrence():
    assert_diagonals_agree(DIAGONALS)


def test_a_shift_filter_without_a_kernel_is_the_same(no_kernels):
    assert_shifts_agree(SHIFTS[::5])


def test_a_diagonal_filter_without_a_kernel_is_the_same(no_kernels):
    assert_diagonals_agree(DIAGONALS[::4])


@pytest.mark.slow
@pytest.mark.parametrize("step", [1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("pairs", [4, 64])
def test_single_precision_lasts_for_a_thousand_tokens(step, pairs, either):
    inputs = draw_diagonal(2, pairs, step, torch.float32)
    assert error(diagonal_filter, inputs, 1024) < 1e-5


def test_the_published_size_is_as_exact_as_a_small_one(either):
    assert error(diagonal_filter, draw_diagonal(4, 512, None, torch.float32), 68) < 1e-5
    assert error(shift_filter, draw_shift(4, 1024, torch.float32), 68) < 1e-5


@pytest.mark.parametrize("time", [68, 1024])
@pytest.mark.parametrize("form", [diagonal_filter, diagonal_filter_ref])
def test_a_diagonal_filter_in_single_precision_is_the_one_in_double_rounded(form, time):
    """Test the plain form, too: models trained with either would drift apart."""
    inputs = draw_diagonal(4, 512, None, torch.float32)
    truth = outcome(partial(diagonal_filter_ref, time=time), in_double(inputs), sums=4)
    assert furthest(outcome(partial(form, time=time), inputs, sums=4), truth) < 2e-7


def test_an_initial_shift_filter_is_exactly_its_readout():
    """It is so to the bit, and the rest has zero gradient: AdamW would amplify roundings."""
    C = torch.randn(3, 1024, generator=torch.Generator().manual_seed(0)).requires_grad_()
    k = shift_filter(torch.eye(1, 1024).repeat(3, 1), C, 68)
    assert torch.equal(k, C.t()[:68])
    (gC,) = torch.autograd.grad(k.square().sum(), C)
    assert torch.equal(gC, F.pad(2 * C[:, :68], (0, 1024 - 68)))


def test_few_lags_are_summed_and_many_transformed(monkeypatch):
    few, many = (
        shift_filter(*draw_shift(2, 100), time) for time in (DIRECT_UP_TO, DIRECT_UP_TO + 1)
    )
    monkeypatch.setattr(filters, "DIRECT_UP_TO", 0)
    assert not torch.equal(shift_filter(*draw_shift(2, 100), DIRECT_UP_TO), few)
    assert torch.equal(shift_filter(*draw_shift(2, 100), DIRECT_UP_TO + 1), many)


@pytest.mark.parametrize("time", [1, 2, 8])
def test_long_steps_over_fast_oscillations_keep_the_gradient_of_the_step(time, either):
    """For large dt A, the effects of dt on weight and pole cancel but for a part in |dt A|."""
    inputs = [torch.tensor([10.0]), torch.tensor([[-0.5 + 1600j]]), torch.tensor([[1.0 + 0.5j]])]
    assert error(diagonal_filter, [x.requires_grad_() for x in inputs], time) < 1e-5


def test_a_pole_at_zero_forgets_after_one_token(either):
    """Test dt A = −2, where the logarithm of the pole is infinite."""
    inputs = [torch.tensor([4.0]), torch.tensor([[-0.5 + 0j]]), torch.tensor([[3.0 + 1j]])]
    assert diagonal_filter(*inputs, 5).flatten().tolist() == [12, 0, 0, 0, 0]
    assert error(diagonal_filter, [x.requires_grad_() for x in inputs], 5) < 1e-5


@pytest.mark.parametrize("time", [1, 2, 7])
def test_gradients_are_those_of_finite_differences(time, either):
    assert gradcheck(lambda B, C: shift_filter(B, C, time), draw_shift(2, 4))
    assert gradcheck(lambda *inputs: diagonal_filter(*inputs, time), draw_diagonal(2, 3))


def test_a_second_derivative_is_an_error(either):
    for form, inputs in ((shift_filter, draw_shift(1, 4)), (diagonal_filter, draw_diagonal(1, 2))):
        (g,) = torch.autograd.grad(form(*inputs, 5).square().sum(), inputs[1], create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            g.abs().sum().backward()


@pytest.mark.parametrize("time", [1, 20, 68, 100])
def test_a_convolution_with_the_diagonal_filter_is_running_the_state_space_model(time):
    """Compare with scipy, each pair as a real system of its real and imaginary parts."""
    dt, A, BC = (x.detach() for x in draw_diagonal(2, 3, 0.3))
    u = torch.randn(time, 2, generator=torch.Generator().manual_seed(time), dtype=torch.float64)
    y = np.zeros((time, 2))
    for c, n in product(range(2), range(3)):
        a, b = A[c, n].real.item(), A[c, n].imag.item()
        system = np.array([[a, -b], [b, a]]), np.array([[1.0], [0.0]]), np.eye(2), np.zeros((2, 1))
        A_bar, B_bar = cont2discrete(system, dt[c].item(), method="bilinear")[:2]
        read, state = 2 * np.array([BC[c, n].real.item(), -BC[c, n].imag.item()]), np.zeros(2)
        for t in range(time):
            state = A_bar @ state + B_bar[:, 0] * u[t, c].item()
            y[t, c] += read @ state
    convolved = long_conv(u[None], diagonal_filter(dt, A, BC, time))[0]
    torch.testing.assert_close(convolved, torch.from_numpy(y), rtol=0, atol=1e-11)


@pytest.mark.parametrize(("d_state", "time"), [(1, 5), (6, 1), (6, 40), (40, 6)])
def test_a_convolution_with_the_shift_filter_is_running_the_state_space_model(d_state, time):
    B, C = (x.detach() for x in draw_shift(3, d_state))
    u = torch.randn(time, 3, generator=torch.Generator().manual_seed(time), dtype=torch.float64)
    shift = torch.diag(torch.ones(d_state - 1, dtype=torch.float64), diagonal=-1)
    state, steps = torch.zeros(3, d_state, dtype=torch.float64), []
    for t in range(time):
        state = state @ shift.t() + B * u[t, :, None]
        steps.append((C * state).sum(dim=1))
    torch.testing.assert_close(
        long_conv(u[None], shift_filter(B, C, time))[0], torch.stack(steps), rtol=0, atol=1e-11
    )


def test_a_shift_filter_ends_with_the_window(either):
    B, C = (x.detach() for x in draw_shift(2, 4))
    k = shift_filter(B, C, 9)
    assert (k[4:] == 0).all()
    torch.testing.assert_close(k[3], B[:, 0] * C[:, 3])


@pytest.mark.parametrize("form", [shift_filter, diagonal_filter])
def test_a_shorter_filter_is_the_beginning_of_a_longer_one(form, either):
    inputs = draw_shift(2, 8) if form is shift_filter else draw_diagonal(2, 8)
    torch.testing.assert_close(form(*inputs, 5), form(*inputs, 30)[:5], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("max_len", [1, 2, 3, 68, 512, 1000])
def test_positions_are_encoded_as_in_zoology(max_len):
    t = torch.linspace(0, 1, max_len)[:, None]
    w = 2 * math.pi * torch.linspace(0, max_len - 1, max_len)[:, None] / max_len
    z = torch.exp(-1j * torch.linspace(1e-4, 0, 1) * w)
    torch.testing.assert_close(
        position_features(max_len), torch.cat([t, z.real, z.imag], dim=-1), rtol=1e-6, atol=1e-7
    )


def test_hyenas_filters_fall_to_a_hundredth_within_03_to_15_lengths():
    rates = decay_rates(64)
    torch.testing.assert_close(torch.exp(-rates[0] * 1.5), torch.tensor(0.01))
    torch.testing.assert_close(torch.exp(-rates[-1] * 0.3), torch.tensor(0.01))
    torch.testing.assert_close(rates.diff(), rates.diff()[:1].expand(63), rtol=1e-4, atol=1e-5)
