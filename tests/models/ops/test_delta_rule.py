"""The chunked delta rule equals its recurrence, and its memory stores and replaces values."""

import inspect
import sys
from importlib.machinery import ModuleSpec
from itertools import product
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from support.numpy_reference import largest_error
from support.task_facts import relative_error
from torch.autograd import gradcheck, gradgradcheck

from mecheval.core.errors import InvalidInput
from mecheval.models.ops import delta_rule as module
from mecheval.models.ops.delta_rule import (
    CHUNK,
    delta_read,
    delta_rule,
    delta_rule_ref,
    delta_states,
    read_states,
)

SHAPES = list(product([1, 3], [*range(1, 14), 16, 17], [1, 2], [1, 4], [1, 3]))
AROUND_CHUNKS = [
    1,
    *(n * CHUNK + d for n in (1, 2, 3) for d in (-1, 0, 1)),
    *(CHUNK * 3 // 2 + d for d in (-1, 0, 1)),
]


def draw_inputs(batch, time, heads, d_key, d_value, dtype=torch.float64):
    """Draw inputs with unit keys, as DeltaNet's are: longer ones would let the memory diverge."""
    rng = torch.Generator().manual_seed(batch + 10 * time + 1000 * heads + 10_000 * d_key)
    q, k = torch.randn(2, batch, time, heads, d_key, generator=rng, dtype=dtype)
    v = torch.randn(batch, time, heads, d_value, generator=rng, dtype=dtype)
    beta = torch.rand(batch, time, heads, generator=rng, dtype=dtype)
    return [x.requires_grad_() for x in (q, F.normalize(k, dim=-1), v, beta)]


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_chunks_of_four_have_the_values_and_gradients_of_the_recurrence(shape, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 4)
    assert largest_error(delta_rule, delta_rule_ref, draw_inputs(*shape)) < 1e-10
    assert (
        largest_error(delta_rule, delta_rule_ref, draw_inputs(*shape, dtype=torch.float32)) < 1e-5
    )


@pytest.mark.parametrize("time", AROUND_CHUNKS)
def test_lengths_around_the_chunk_have_the_values_and_gradients_of_the_recurrence(time):
    for shape in ((2, time, 1, 8, 8), (1, time, 2, 5, 3)):
        assert largest_error(delta_rule, delta_rule_ref, draw_inputs(*shape)) < 1e-10
        assert (
            largest_error(delta_rule, delta_rule_ref, draw_inputs(*shape, dtype=torch.float32))
            < 1e-5
        )


@pytest.mark.parametrize("reads", [1, 4])
@pytest.mark.parametrize("time", AROUND_CHUNKS)
def test_reading_some_positions_has_the_values_and_gradients_of_the_recurrence(time, reads):
    at = torch.randint(time, (3, reads), generator=torch.Generator().manual_seed(time))
    at[0, 0], at[1, 0] = 0, time - 1  # both ends
    rows = torch.arange(3)[:, None]
    for dtype, most in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        inputs = draw_inputs(3, time, 2, 8, 5, dtype)
        errors = largest_error(
            lambda q, k, v, beta: delta_read(q[rows, at], k, v, beta, at),
            lambda q, k, v, beta: delta_rule_ref(q, k, v, beta)[rows, at],
            inputs,
        )
        assert errors < most


@pytest.mark.parametrize("beta", [0.0, 1.0, None])
@pytest.mark.parametrize("repeated", ["all keys", "every third key", "no key"])
@pytest.mark.parametrize("time", [CHUNK - 1, CHUNK + 1, 2 * CHUNK])
def test_extreme_rates_and_repeated_keys_agree_as_well(beta, repeated, time):
    for dtype, most in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        q, k, v, rates = (x.detach() for x in draw_inputs(2, time, 1, 8, 4, dtype))
        period = {"all keys": 1, "every third key": 3, "no key": time}[repeated]
        k = k[:, torch.arange(time) % period]
        rates = rates if beta is None else torch.full_like(rates, beta)
        assert (
            largest_error(
                delta_rule, delta_rule_ref, [x.requires_grad_() for x in (q, k, v, rates)]
            )
            < most
        )


@pytest.mark.parametrize("time", [1, 3, 6])
def test_gradients_are_those_of_finite_differences(time, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 3)
    inputs = draw_inputs(2, time, 1, 3, 2)
    assert gradcheck(delta_rule, inputs)
    assert gradgradcheck(delta_rule, inputs)


@pytest.mark.parametrize("which", [0, 1, 2, 3])
@pytest.mark.parametrize("changed", [1, 5, 8, 12])
def test_changing_the_future_leaves_the_past_unchanged(which, changed, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 5)
    inputs = draw_inputs(2, 13, 2, 3, 4)
    other = list(inputs)
    other[which] = torch.cat([inputs[which][:, :changed], inputs[which][:, changed:] / 2], dim=1)
    o, z = delta_rule(*inputs), delta_rule(*other)
    assert torch.equal(o[:, :changed], z[:, :changed])
    assert not torch.isclose(o[:, changed], z[:, changed]).all(dim=-1).any()


def test_reading_the_written_states_is_the_delta_rule():
    q, k, v, beta = draw_inputs(2, 2 * CHUNK + 3, 2, 4, 3)
    states = delta_states(k, v, beta)
    assert states.shape == (2, 2 * CHUNK + 3, 2, 4, 3)
    torch.testing.assert_close(
        read_states(q, states), delta_rule(q, k, v, beta), rtol=1e-10, atol=1e-10
    )


def test_each_state_replaces_part_of_what_the_key_held():
    """Compare with matrices: S_t = (I − β k kᵀ) S_{t−1} + β k vᵀ."""
    _, k, v, beta = (x.detach()[0, :, 0] for x in draw_inputs(1, 10, 1, 4, 3))
    S = torch.zeros(4, 3, dtype=torch.float64)
    for t, state in enumerate(
        delta_states(k[None, :, None], v[None, :, None], beta[None, :, None])[0, :, 0]
    ):
        S = (torch.eye(4) - beta[t] * torch.outer(k[t], k[t])) @ S + beta[t] * torch.outer(
            k[t], v[t]
        )
        torch.testing.assert_close(state, S, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rule", [delta_rule, delta_rule_ref])
def test_a_memory_with_orthonormal_keys_returns_exactly_what_was_stored(rule):
    """Write sixteen pairs, then query each key without writing."""
    v = torch.randn(2, 16, 1, 5, generator=torch.Generator().manual_seed(0))
    beta = torch.cat([torch.ones(2, 16, 1), torch.zeros(2, 16, 1)], dim=1)
    values = torch.cat([v, torch.full_like(v, 7)], dim=1)
    one_hot = torch.eye(16).repeat(2, 1).expand(2, 32, 16)[:, :, None]
    assert torch.equal(rule(one_hot, one_hot, values, beta)[:, 16:], v)

    turned = torch.linalg.qr(
        torch.randn(16, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ).Q
    keys = one_hot.double() @ turned
    torch.testing.assert_close(
        rule(keys, keys, values.double(), beta.double())[:, 16:], v.double(), rtol=0, atol=1e-13
    )


@pytest.mark.parametrize("rule", [delta_rule, delta_rule_ref])
def test_a_key_written_again_holds_only_the_new_value(rule):
    _, k, v, _ = (x.detach() for x in draw_inputs(2, CHUNK + 9, 1, 4, 3))
    k = k[:, :1].expand_as(k)
    o = rule(k, k, v, torch.ones(2, CHUNK + 9, 1, dtype=torch.float64))
    torch.testing.assert_close(o, v, rtol=0, atol=1e-12)


def test_a_memory_that_is_never_written_is_empty():
    q, k, v, beta = draw_inputs(2, CHUNK + 9, 2, 4, 3)
    assert (delta_rule(q, k, v, torch.zeros_like(beta)) == 0).all()


def test_fla_is_called_with_scaled_queries(monkeypatch):
    def fused_recurrent_delta_rule(q, k, v, beta, scale):
        return scale * delta_rule_ref(q, k, v, beta), None

    package = ModuleType("fla.ops.delta_rule")
    package.__spec__ = ModuleSpec("fla", loader=None)
    package.fused_recurrent_delta_rule = package.chunk_delta_rule = fused_recurrent_delta_rule
    for name in ("fla", "fla.ops", package.__name__):
        monkeypatch.setitem(sys.modules, name, package)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 5, 3, 4, generator=generator) for _ in "qkv")
    beta = torch.rand(2, 5, 3, generator=generator)
    assert torch.equal(delta_rule(q, k, v, beta, backend="fla"), delta_rule_ref(q, k, v, beta))


def test_fla_agrees_with_the_equation():
    pytest.importorskip("fla", reason="flash-linear-attention is not installed")
    if not torch.cuda.is_available():
        pytest.skip("the kernels of fla need CUDA")
    q, k, v = (
        torch.nn.functional.normalize(torch.randn(2, 33, 2, 64), dim=-1).cuda() for _ in "qkv"
    )
    beta = torch.rand(2, 33, 2).cuda()
    result, exact = delta_rule(q, k, v, beta, backend="fla"), delta_rule_ref(q, k, v, beta)
    assert relative_error(result, exact) <= 1e-4


def test_an_unavailable_backend_is_rejected_in_one_line(monkeypatch):
    rule = inspect.unwrap(delta_rule)  # the type checks of the test run would raise first
    x, beta = torch.ones(1, 2, 1, 3), torch.ones(1, 2, 1)
    with pytest.raises(
        InvalidInput, match=r"^unknown backend 'numba' \(known: auto, torch, fla\)$"
    ):
        rule(x, x, x, beta, backend="numba")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        InvalidInput, match=r"^backend=fla needs the package fla, which is not installed"
    ):
        rule(x, x, x, beta, backend="fla")
