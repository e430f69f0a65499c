"""Reading one token equals the scan there, in values and gradients, at any shape and decay."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.strategies import DECAYS, SHAPES, draw
from support.task_facts import largest, relative_error

from mecheval.models.ops import gather_reads
from mecheval.models.ops.selective_scan import selective_read, selective_scan_ref


def positions(shape, seed):
    batch, time, *_ = shape
    return torch.randint(time, (batch, 1), generator=torch.Generator().manual_seed(seed))


def results(read, inputs, signs=torch.clone):
    y = read(*inputs)
    weights = signs(torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype))
    tensors = [y, *torch.autograd.grad(y, inputs, weights)]
    return dict(zip(["y", "x", "dt", "A", "B", "C", "D"], tensors, strict=True))


def read_at(at, backend="auto"):
    return lambda x, dt, A, B, C, D: selective_read(
        x, dt, A, B, gather_reads(C, at), D, at, backend=backend
    )


def plain_at(at):
    return lambda *inputs: gather_reads(selective_scan_ref(*inputs), at)


@pytest.mark.slow
@settings(max_examples=300)
@given(shape=SHAPES, seed=st.integers(0, 999), decays=DECAYS)
@example(shape=(1, 1, 1, 1), seed=0, decays=(-6, 4))
@example(shape=(2, 33, 65, 16), seed=0, decays=(-6, 4))
def test_it_is_the_equation_in_float64(shape, seed, decays):
    inputs, at = draw(shape, seed, decays), positions(shape, seed)
    result, expected = results(read_at(at), inputs), results(plain_at(at), inputs)
    for name, exact in expected.items():
        assert relative_error(result[name], exact, least=1e-270) <= 1e-9, name


@pytest.mark.slow
@settings(max_examples=100)
@given(shape=SHAPES, seed=st.integers(0, 999), decays=DECAYS)
def test_it_is_the_equation_in_float32(shape, seed, decays):
    inputs, at = draw(shape, seed, decays, torch.float32), positions(shape, seed)
    doubled = [tensor.detach().double().requires_grad_() for tensor in inputs]
    result, expected = results(read_at(at), inputs), results(plain_at(at), doubled)
    x, dt, A, B, C, D = (tensor.detach() for tensor in doubled)
    positive = [tensor.requires_grad_() for tensor in (x.abs(), dt, A, B.abs(), C.abs(), D.abs())]
    terms = results(plain_at(at), positive, torch.abs)  # if nothing cancelled
    for name, exact in expected.items():
        slack = 4 * torch.finfo(torch.float32).eps * largest(terms[name]) + 1e-25
        assert largest(result[name] - exact) <= 1e-5 * largest(exact) + slack, name


@pytest.mark.parametrize("backend", ["auto", "numba", "torch"])
def test_every_backend_reads_the_same(backend):
    shape = (3, 9, 20, 4)
    inputs, at = draw(shape), positions(shape, 0)
    result, expected = results(read_at(at, backend), inputs), results(plain_at(at), inputs)
    for name, exact in expected.items():
        torch.testing.assert_close(result[name], exact, rtol=1e-9, atol=1e-12)


def test_later_tokens_have_no_gradient():
    shape = (2, 9, 5, 4)
    inputs, at = draw(shape), torch.tensor([[3], [0]])
    gradients = torch.autograd.grad(read_at(at)(*inputs).sum(), inputs[:2])
    assert all(not gradient[0, 4:].any() and not gradient[1, 1:].any() for gradient in gradients)
    assert all(gradient[0, :4].any() for gradient in gradients)
