"""The compiled recurrence, its single reads and its weights equal the equation, step by step."""

from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
import torch
from support.numpy_reference import PRECISION
from support.task_facts import relative_error

from mecheval.models.layers import l2_normalise
from mecheval.models.ops.compiled import apply_kernels
from mecheval.models.ops.kernels import additive_recurrence
from mecheval.models.ops.kernels import recurrence as general_recurrence
from mecheval.models.ops.kernels.recurrence import CHUNK, WIDTHS, block_width
from mecheval.models.ops.recurrence import (
    Writes,
    propagate_edit,
    read_states,
    recurrence,
    recurrence_read,
    recurrence_read_ref,
    recurrence_ref,
    recurrence_states,
    recurrence_weights,
)

# batch, tokens, heads, d_key, d_value, steps of a token
SHAPES = [
    (1, 1, 1, 1, 1, 1),
    (2, 2, 1, 3, 5, 1),
    (2, 7, 2, 4, 3, 1),
    (1, CHUNK - 1, 1, 4, 16, 1),
    (2, CHUNK, 1, 5, 17, 1),
    (1, CHUNK + 1, 2, 8, 32, 1),
    (1, 2 * CHUNK, 1, 6, 33, 1),
    (2, 67, 1, 8, 64, 1),
    (1, 67, 1, 4, 65, 1),
    (1, 9, 3, 4, 4, 2),
    (2, CHUNK, 1, 5, 7, 3),
    (1, 2 * CHUNK + 1, 2, 6, 17, 2),
    (1, 129, 1, 2, 2, 1),
]
FEW = [shape for shape in SHAPES if shape[1] * shape[5] <= CHUNK + 1]
some_and_all = pytest.mark.parametrize(
    "shapes", [FEW[2::3], pytest.param(SHAPES, marks=pytest.mark.slow)], ids=["some", "all"]
)
DECAYS = ["none", "head", "channel", "strong", "vanishing"]
ERASE = ["nothing", "old value", "any"]
every_kind = pytest.mark.parametrize(("decay", "erase"), list(product(DECAYS, ERASE)))


def draw(shape, decay, erase, dtype=torch.float64):
    """Return q and the writes, with gradients; strong decays reach exp(−200) and exp(−10⁵)."""
    batch, time, heads, d_key, d_value, steps = shape
    rng = torch.Generator().manual_seed(0)

    def normal(*size):
        return torch.randn(*size, generator=rng, dtype=torch.float64)

    def log_decays(width):
        return -torch.rand(batch, time * steps, heads, width, generator=rng, dtype=torch.float64)

    q, k = (l2_normalise(normal(batch, n, heads, d_key)) for n in (time, time * steps))
    log_w = {
        "none": None,
        "head": log_decays(1),
        "channel": log_decays(d_key),
        "strong": 200 * -(log_decays(d_key).abs() ** 4),
        "vanishing": torch.where(log_decays(1) < -0.9, -1e5, 0.0).to(torch.float64),
    }[decay]
    a = {"nothing": None, "old value": 0.9 * k, "any": l2_normalise(normal(*k.shape))}[erase]
    b = -0.5 * a if erase == "any" else None
    writes = Writes(k, normal(batch, time * steps, heads, d_value), log_w, a, b, steps)
    q, *parts = (
        x if x is None else x.to(dtype).requires_grad_() for x in (q, *tensors(writes).values())
    )
    return q, Writes(*parts, steps=steps)


def tensors(writes):
    return {f.name: getattr(writes, f.name) for f in fields(writes) if f.name != "steps"}


def outcome(form, q, writes):
    """Return the output and the gradients of a weighted sum of it."""
    o = form(q, writes)
    weights = torch.randn(o.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    inputs = [q, *(x for x in tensors(writes).values() if x is not None)]
    return [o.detach(), *torch.autograd.grad((o * weights.to(o)).sum(), inputs)]


def in_double(q, writes):
    parts = {
        name: x if x is None else x.detach().double().requires_grad_()
        for name, x in tensors(writes).items()
    }
    return q.detach().double().requires_grad_(), replace(writes, **parts)


@pytest.mark.parametrize(("module", "inputs"), [(additive_recurrence, 5), (general_recurrence, 7)])
def test_a_kernel_is_not_compiled_again_by_the_next_process(module, inputs):
    """That makes the functions in it anew, as a second call of `kernels` without cache does."""
    for _ in range(2):
        forward, _ = module.kernels.__wrapped__(WIDTHS[0])
        forward(*np.zeros((inputs, 1, 1, 1, 4), np.float32))
    assert forward.stats.cache_hits
    assert not forward.stats.cache_misses


@pytest.mark.parametrize("dtype", PRECISION, ids=str)
@some_and_all
@every_kind
def test_values_and_gradients_are_those_of_the_equation(decay, erase, dtype, shapes):
    for shape in shapes:
        q, writes = draw(shape, decay, erase, dtype)
        truth = outcome(recurrence_ref, *in_double(q, writes))
        for result, exact in zip(outcome(recurrence, q, writes), truth, strict=True):
            assert result.dtype == dtype
            assert relative_error(result, exact) <= PRECISION[dtype], shape


@pytest.mark.parametrize("dtype", PRECISION, ids=str)
@some_and_all
@every_kind
def test_single_reads_and_their_gradients_are_those_of_the_whole(decay, erase, dtype, shapes):
    for shape in shapes:
        q, writes = draw(shape, decay, erase, dtype)
        backwards = torch.arange(shape[1]).flip(0).expand(shape[0], -1)

        def read(form, q, writes, at=backwards):
            return form(q.flip(1), writes, at).flip(1)

        truth = outcome(recurrence_ref, *in_double(q, writes))
        for form in (recurrence_read, recurrence_read_ref):
            results = outcome(lambda q, w, form=form: read(form, q, w), q, writes)
            for result, exact in zip(results, truth, strict=True):
                assert relative_error(result, exact) <= PRECISION[dtype], (shape, form.__name__)


@some_and_all
@every_kind
@torch.no_grad()
def test_weights_times_values_are_the_outputs(decay, erase, shapes):
    for shape in shapes:
        q, writes = draw(shape, decay, erase)
        weights = recurrence_weights(q, writes)
        o = torch.einsum("bhts,bshd->bthd", weights, writes.v)
        assert relative_error(o, recurrence_ref(q, writes)) <= 1e-10, shape


@some_and_all
@every_kind
@torch.no_grad()
def test_the_recurrence_continues_from_an_edited_memory(decay, erase, shapes):
    for shape in shapes:
        q, writes = draw(shape, decay, erase)
        states = recurrence_states(writes)
        edited = states.clone()
        where, rng = shape[1] // 2, torch.Generator().manual_seed(2)
        edited[0, where] = torch.randn(edited[0, where].shape, generator=rng, dtype=torch.float64)
        result = propagate_edit(states, edited, writes)
        # the memory is what it is without the edit, and the difference carried on
        first = (where + 1) * writes.steps
        rest = {name: x if x is None else x[:, first:] for name, x in tensors(writes).items()} | {
            "v": torch.zeros_like(writes.v[:, first:])
        }
        assert torch.equal(result[:, :where], states[:, :where])
        assert torch.equal(result[0, where], edited[0, where])
        carried = edited[:, where] - states[:, where]
        for t in range(where + 1, shape[1]):
            for step in range((t - where - 1) * writes.steps, (t - where) * writes.steps):
                carried = follow(carried, replace(writes, **rest), step)
            assert relative_error(result[:, t], states[:, t] + carried, 1e-8) <= 1e-10, (shape, t)
        o = read_states(q, result)
        assert torch.equal(o[:, :where], read_states(q, states)[:, :where])


def follow(S, writes, step):
    """Return the memory after a step that writes nothing, one row and head at a time."""
    new = torch.empty_like(S)
    for n, h in product(range(S.shape[0]), range(S.shape[1])):
        w, a, b = (
            x if x is None else x[n, step, h] for x in (writes.w, writes.a, writes.erased_at)
        )
        keep = torch.diag(
            torch.ones(len(S[n, h])).double() if w is None else w.expand(len(S[n, h]))
        )
        new[n, h] = keep @ S[n, h] if a is None else (keep + torch.outer(b, a)) @ S[n, h]
    return new


def test_the_equation_is_the_one_of_the_docstring():
    # by hand: one row, two steps
    q, k, v = torch.ones(1, 2, 1, 1), torch.full((1, 2, 1, 1), 2.0), torch.full((1, 2, 1, 1), 3.0)
    log_w, half = torch.full((1, 2, 1, 1), 0.5).log(), torch.full((1, 2, 1, 1), 0.25)
    assert recurrence_ref(q, Writes(k, v)).flatten().tolist() == [6, 12]
    assert recurrence_ref(q, Writes(k, v, log_w)).flatten().tolist() == [6, 9]
    # what is held at a, 6/4, is replaced: 6 − 2·(6/4) + 6
    assert recurrence_ref(q, Writes(k, v, a=half)).flatten().tolist() == [6, 9]
    assert recurrence_ref(q, Writes(k, v, a=half, b=half)).flatten().tolist() == [6, 12.375]


def test_a_token_of_several_steps_is_read_after_the_last():
    q, writes = draw((2, 6, 1, 3, 4, 1), "channel", "old value")
    every = recurrence_ref(q, writes)
    twice = recurrence_ref(q[:, 1::2], replace(writes, steps=2))
    assert torch.equal(twice, every[:, 1::2])


def test_blocks_are_as_wide_as_they_can_be_without_padding():
    assert [block_width(columns) for columns in (1, 16, 17, 32, 48, 64, 96, 128)] == [
        16, 16, 32, 32, 16, 64, 32, 64,
    ]  # fmt: skip
    assert set(WIDTHS) == {16, 32, 64}


@pytest.mark.parametrize("width", [0, 1, 6])
@pytest.mark.parametrize("read", [False, True])
def test_where_nothing_is_erased_no_decay_is_repeated_and_nothing_filled(width, read, monkeypatch):
    q, writes = draw((2, 5, 2, 6, 4, 1), {0: "none", 1: "head", 6: "channel"}[width], "nothing")
    seen = []

    def look(kernels, shape, written, *inputs):
        seen.extend(tuple(x.shape) for x in inputs)
        return apply_kernels(kernels, shape, written, *inputs)

    monkeypatch.setattr("mecheval.models.ops.recurrence.apply_kernels", look)
    at = torch.arange(5).expand(2, -1)
    o = recurrence_read(q, writes, at) if read else recurrence(q, writes)
    assert relative_error(o, recurrence_ref(q, writes)) <= 1e-10
    rows = 6 if read else 8  # whole groups
    given = [(2, 5, 2, rows)] * 2 + [(2, 5, 2, 4)]
    decay = [(2, 5, 2, rows if width == 6 else width)]
    erased = [(2, 5, 2, 0)] * 2 + [(2, 5)] if read else []
    assert seen == given + decay + erased


def test_what_a_step_forgets_at_once_has_no_gradient_in_its_decay():
    """It follows from other gradients, whose rounding errors would be all that is left of it."""
    q, writes = draw((2, 67, 2, 8, 32, 1), "vanishing", "nothing", torch.float32)
    _, _, _, _, grates = outcome(recurrence, q, writes)
    gone = writes.log_w < -1
    assert gone.any()
    assert not grates[gone].any()
    assert grates[~gone].any()


def test_the_first_decay_has_no_gradient():
    for decay in ("head", "channel", "strong"):
        q, writes = draw((2, 33, 2, 8, 32, 1), decay, "nothing", torch.float32)
        *_, grates = outcome(recurrence, q, writes)
        assert not grates[:, 0].any()
        assert grates[:, 1].any()


def test_gradients_of_slow_decays_stay_precise_over_many_steps():
    """Their sums over steps are differences of the gradients of queries and keys."""
    q, writes = draw((1, 2048, 1, 8, 16, 1), "channel", "nothing", torch.float32)
    with torch.no_grad():
        writes.log_w.mul_(1e-3)
    truth = outcome(recurrence, *in_double(q, writes))
    for result, exact in zip(outcome(recurrence, q, writes), truth, strict=True):
        assert relative_error(result, exact) <= 1e-5


def test_half_precision_takes_the_plain_form():
    q, writes = draw((1, 5, 1, 2, 2, 1), "none", "nothing", torch.bfloat16)
    assert torch.equal(recurrence(q, writes), recurrence_ref(q, writes))
