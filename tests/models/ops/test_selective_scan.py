"""Every backend of the selective scan equals its equation, at any shape and decay."""

import inspect
import subprocess
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.strategies import DECAYS, SHAPES, draw
from support.task_facts import largest, relative_error
from torch.autograd.graph import saved_tensors_hooks

from mecheval.core.errors import InvalidInput
from mecheval.models.ops.selective_scan import (
    read_states,
    selective_scan,
    selective_scan_ref,
    selective_states,
)


def weights(y):
    return torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype)


def results(scan, inputs, weights=weights):
    """Return the outputs and the six gradients of their weighted sum."""
    y = scan(*inputs)
    tensors = [y, *torch.autograd.grad(y, inputs, weights(y))]
    return dict(zip(["y", "x", "dt", "A", "B", "C", "D"], tensors, strict=True))


def exact_terms(inputs):
    """Return the results if nothing cancelled: every summand counts with its magnitude."""
    x, dt, A, B, C, D = inputs
    positive = [
        tensor.detach().requires_grad_() for tensor in (x.abs(), dt, A, B.abs(), C.abs(), D.abs())
    ]
    return results(selective_scan_ref, positive, lambda y: weights(y).abs())


def through(backend):
    return lambda *inputs: selective_scan(*inputs, backend=backend)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numba", "torch"])
@settings(max_examples=400)
@given(shape=SHAPES, seed=st.integers(0, 999), decays=DECAYS)
@example(shape=(1, 1, 1, 1), seed=0, decays=(-6, 4))
@example(shape=(2, 33, 65, 16), seed=0, decays=(-6, 4))
def test_every_backend_is_the_equation_in_float64(backend, shape, seed, decays):
    inputs = draw(shape, seed, decays)
    result, expected = results(through(backend), inputs), results(selective_scan_ref, inputs)
    for name, exact in expected.items():
        assert relative_error(result[name], exact, least=1e-270) <= 1e-10, name


@settings(max_examples=400)
@given(shape=SHAPES, seed=st.integers(0, 999), decays=DECAYS)
@example(shape=(1, 1, 1, 1), seed=0, decays=(-6, 4))
@example(shape=(2, 33, 65, 16), seed=0, decays=(-6, 4))
@example(shape=(2, 300, 5, 16), seed=0, decays=(-6, -3))
def test_the_compiled_scan_is_the_equation_in_float32(shape, seed, decays):
    inputs = draw(shape, seed, decays, torch.float32)
    exact_inputs = [tensor.detach().double().requires_grad_() for tensor in inputs]
    result, expected = results(through("numba"), inputs), results(selective_scan_ref, exact_inputs)
    terms = exact_terms(exact_inputs)
    for name, exact in expected.items():
        # four roundings of what cancelled, and the states that are too small to be kept
        slack = 4 * torch.finfo(torch.float32).eps * largest(terms[name]) + 1e-25
        assert largest(result[name] - exact) <= 1e-5 * largest(exact) + slack, name


def test_gradients_are_those_of_finite_differences():
    inputs = draw((2, 5, 3, 4))
    with torch.no_grad():
        inputs[1] += 0.1  # away from 0, which has no other side
    assert torch.autograd.gradcheck(through("numba"), inputs)


def test_a_second_derivative_is_an_error():
    inputs = draw((1, 3, 2, 2))
    (gradient,) = torch.autograd.grad(
        selective_scan(*inputs).square().sum(), inputs[0], create_graph=True
    )
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_the_decay_in_float32_is_within_a_millionth_of_the_exponential():
    # the first token leaves h = 1e8, the second decays it by exp(−dt)
    dt = torch.linspace(0, 87, 100_001)
    ones = torch.ones(1, 2, 1)
    x, steps = (
        torch.stack([torch.full_like(dt, 1e8), torch.zeros_like(dt)]),
        torch.stack([torch.ones_like(dt), dt]),
    )
    A, D = -torch.ones(len(dt), 1), torch.zeros(len(dt))
    y = selective_scan(x[None], steps[None], A, ones, ones, D, backend="numba")[0, 1]
    torch.testing.assert_close(y.double(), 1e8 * torch.exp(-dt.double()), rtol=1e-6, atol=0)
    assert y[0] == 1e8


@pytest.mark.parametrize("decay", [88, 1e3, 1e30, float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_decays_to_zero_and_not_to_nan(dtype, decay):
    x, dt, A, B, C, D = draw((1, 4, 3, 2), dtype=dtype)
    A = torch.full_like(A, -decay, requires_grad=True)
    result = results(through("numba"), [x, torch.ones_like(dt, requires_grad=True), A, B, C, D])
    torch.testing.assert_close(result["y"], x * (B * C).sum(-1, keepdim=True) + D * x)
    assert decay == float("inf") or all(tensor.isfinite().all() for tensor in result.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nan_stays_in_its_sequence(dtype):
    inputs = draw((3, 9, 65, 4), dtype=dtype)
    broken = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    with torch.no_grad():
        broken[0][1, 4, 64] = torch.nan
    whole, result = results(through("numba"), inputs), results(through("numba"), broken)
    assert result["y"][1, 4:, 64].isnan().all()
    for name in ("y", "x", "dt", "B", "C"):
        assert torch.equal(result[name][[0, 2]], whole[name][[0, 2]]), name


@pytest.mark.parametrize("name", ["x", "dt", "A"])
def test_nan_is_not_hidden(name):
    inputs = dict(
        zip(["x", "dt", "A", "B", "C", "D"], draw((1, 4, 3, 2), dtype=torch.float32), strict=True)
    )
    inputs[name] = torch.full_like(inputs[name], torch.nan)
    assert selective_scan(**inputs, backend="numba")[:, 1:].isnan().all()


def test_the_outputs_are_what_is_read_from_the_states():
    x, dt, A, B, C, D = draw((2, 9, 5, 3))
    states = selective_states(x, dt, A, B)
    torch.testing.assert_close(read_states(states, x, C, D), selective_scan_ref(x, dt, A, B, C, D))
    # each state by itself: read at its own place, with nothing passing by
    for n in range(3):
        only = torch.zeros_like(C)
        only[..., n] = 1
        torch.testing.assert_close(
            states[..., n], selective_scan_ref(x, dt, A, B, only, torch.zeros_like(D))
        )


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_no_token_sees_a_later_one(backend):
    x, dt, A, B, C, D = draw((2, 12, 7, 5), dtype=torch.float32)
    before = selective_scan(x, dt, A, B, C, D, backend=backend)
    for t in range(11):
        later = torch.arange(12)[:, None] > t
        other_x, other_dt, other_B, other_C = (
            torch.where(later, 1.5, tensor) for tensor in (x, dt, B, C)
        )
        after = selective_scan(other_x, other_dt, A, other_B, other_C, D, backend=backend)
        assert torch.equal(after[:, : t + 1], before[:, : t + 1])
        assert not torch.equal(after, before)


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_inputs_need_not_be_contiguous(backend):
    def strided(tensor):
        return tensor.detach().repeat_interleave(2, -1)[..., ::2].requires_grad_()

    def strided_weights(y):
        return strided(weights(y))

    inputs = draw((3, 6, 10, 4))
    expected = results(through(backend), inputs)
    result = results(through(backend), [strided(tensor) for tensor in inputs], strided_weights)
    for name in expected:
        assert torch.equal(result[name], expected[name]), name


def test_a_kernel_is_compiled_once_for_each_precision_and_not_for_each_layout():
    from mecheval.models.ops.kernels.selective_scan import block_width, kernels

    forward, backward = kernels(block_width(4))
    for inputs in (draw((2, 3, 4, 5), dtype=torch.float32), draw((2, 3, 4, 5))):
        inputs[0] = inputs[0].detach().mT.contiguous().mT.requires_grad_()
        inputs[5] = torch.zeros((), dtype=inputs[0].dtype, requires_grad=True).expand(4)
        selective_scan(*inputs).sum().backward()  # whose gradient is a single one, expanded
    assert len(forward.signatures) == len(backward.signatures) == 2


@pytest.mark.parametrize(
    ("channels", "width"), [(1, 32), (32, 32), (33, 64), (100, 128), (192, 64), (512, 128)]
)
def test_blocks_are_as_wide_as_they_can_be_without_more_padding(channels, width):
    from mecheval.models.ops.kernels.selective_scan import block_width

    assert block_width(channels) == width


def test_training_keeps_the_inputs_and_nothing_else():
    inputs, kept = draw((4, 20, 30, 16), dtype=torch.float32), []
    with saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        selective_scan(*inputs, backend="numba")
    assert [tensor.data_ptr() for tensor in kept] == [tensor.data_ptr() for tensor in inputs]


MEMORY = """
import re, torch
from mecheval.models.ops.selective_scan import selective_scan

def train(batch, time, d_inner, d_state, backend):
    x, B = torch.ones(batch, time, d_inner, requires_grad=True), torch.ones(batch, time, d_state)
    A, D = -torch.ones(d_inner, d_state), torch.ones(d_inner)
    selective_scan(x, x, A, B, B, D, backend=backend).sum().backward()

def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])

for backend in ("numba", "torch"):
    train(1, 2, 3, 4, backend)
    before = peak()
    train(16, 256, 256, 16, backend)
    print((peak() - before) / (4 * 16 * 256 * 256 * 16))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
def test_training_never_holds_the_states_of_a_batch():
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True
    )
    numba, torch_form = map(float, done.stdout.split())
    assert numba < 0.5  # x, y and their gradients are 1/16 of the states each
    assert torch_form > 1, "the measure sees states that are held"


def test_auto_uses_the_compiled_scan_where_possible():
    inputs = draw((2, 5, 3, 4), dtype=torch.float32)
    assert torch.equal(selective_scan(*inputs), selective_scan(*inputs, backend="numba"))
    short = [tensor.bfloat16() for tensor in inputs]
    assert torch.equal(selective_scan(*short), selective_scan(*short, backend="torch"))


def test_an_unavailable_backend_is_rejected_in_one_line(monkeypatch):
    scan = inspect.unwrap(selective_scan)  # the type checks of the test run would raise first
    inputs = draw((1, 2, 3, 4), dtype=torch.float32)
    with pytest.raises(InvalidInput, match=r"^unknown backend 'mamba' \(known: auto, torch, numba"):
        scan(*inputs, backend="mamba")
    with pytest.raises(InvalidInput, match=r"^backend=.numba. needs .*; these are bfloat16 on cpu"):
        scan(inputs[0].bfloat16(), *inputs[1:], backend="numba")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        InvalidInput,
        match=r"^backend=mamba_ssm needs the package mamba_ssm, which is not installed",
    ):
        scan(*inputs, backend="mamba_ssm")


def test_mamba_ssm_is_called_with_time_last(monkeypatch):
    def selective_scan_fn(u, delta, A, B, C, D):
        u, delta, B, C = (tensor.transpose(1, 2) for tensor in (u, delta, B, C))
        return selective_scan_ref(u, delta, A, B, C, D).transpose(1, 2)

    interface = ModuleType("mamba_ssm.ops.selective_scan_interface")
    interface.__spec__ = ModuleSpec("mamba_ssm", loader=None)
    interface.selective_scan_fn = selective_scan_fn
    for name in ("mamba_ssm", "mamba_ssm.ops", interface.__name__):
        monkeypatch.setitem(sys.modules, name, interface)
    inputs = draw((2, 5, 3, 4))
    assert torch.equal(selective_scan(*inputs, backend="mamba_ssm"), selective_scan_ref(*inputs))


def test_mamba_ssm_agrees_with_the_equation():
    pytest.importorskip("mamba_ssm", reason="mamba_ssm is not installed")
    if not torch.cuda.is_available():
        pytest.skip("the kernels of mamba_ssm need CUDA")
    inputs = [
        tensor.detach().cuda().requires_grad_()
        for tensor in draw((2, 33, 64, 16), dtype=torch.float32)
    ]
    result = results(through("mamba_ssm"), inputs, torch.ones_like)
    for name, exact in results(selective_scan_ref, inputs, torch.ones_like).items():
        assert relative_error(result[name], exact) <= 1e-4, name
