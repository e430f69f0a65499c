"""Kernels flush denormal numbers while they run, and only then."""

import pytest
import torch
from support.strategies import draw

from mecheval.models.ops.per_token import rms_norm
from mecheval.models.ops.selective_scan import selective_read, selective_scan

DENORMAL = torch.tensor(1e-40)


@pytest.fixture(params=[False, True], ids=["kept", "flushed"])
def flushed(request):
    torch.set_flush_denormal(request.param)
    yield request.param
    torch.set_flush_denormal(False)


def test_a_kernel_leaves_denormals_as_it_found_them(flushed):
    inputs = draw((2, 5, 3, 4), dtype=torch.float32)
    selective_scan(*inputs).sum().backward()
    assert bool(DENORMAL * 1 == 0) == flushed


def test_a_kernel_that_fails_leaves_denormals_as_it_found_them(flushed):
    from mecheval.models.ops.compiled import run

    def fails(array):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(fails, torch.zeros(1))
    assert bool(DENORMAL * 1 == 0) == flushed


def test_a_second_derivative_is_an_error():
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    (slope,) = torch.autograd.grad(
        rms_norm(x, torch.ones(3), 1e-5).square().sum(), x, create_graph=True
    )
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_decaying_state_ends_in_zero_and_not_in_denormals(flushed, dtype):
    time = 900
    x = torch.zeros(1, time, 1, dtype=dtype)
    x[0, 0] = 1
    ones = torch.ones_like(x)
    A = -torch.ones(1, 1, dtype=dtype)
    y = selective_scan(
        x, ones, A, ones, ones, torch.zeros(1, dtype=dtype), backend="numba"
    ).flatten()
    assert (y[:80] > 0).all()
    assert y[-1] == 0
    torch.set_flush_denormal(False)
    assert not ((y != 0) & (y.abs() < torch.finfo(dtype).tiny)).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sign", [-1, 1])
def test_an_overflowing_state_is_not_finite_and_leaves_other_channels_alone(dtype, sign):
    x, dt, A, B, C, D = (tensor.detach() for tensor in draw((1, 6, 3, 2), dtype=dtype))
    dt, A = sign * dt.abs(), sign * A.abs()
    dt[0, 3, 1] = sign * 1e6
    at = torch.tensor([[5]])
    for y in (
        selective_scan(x, dt, A, B, C, D, backend="numba")[0, 5],
        selective_read(x, dt, A, B, C[:, 5:], D, at)[0, 0],
    ):
        assert not y[1].isfinite()
        assert y[[0, 2]].isfinite().all()
