"""The compiled linear scan and its single reads equal the equation, in values and gradients."""

from itertools import product

import pytest
import torch
from support.numpy_reference import PRECISION
from support.task_facts import relative_error
from torch.autograd.graph import saved_tensors_hooks

from mecheval.models.ops import gather_reads
from mecheval.models.ops.linear_scan import (
    STEEPEST,
    complement,
    linear_scan,
    linear_scan_read,
    linear_scan_ref,
    propagate_edit,
)

SHAPES = [*product([1, 3], [1, 2, 7, 16], [1, 4, 5]), (2, 67, 33), (1, 129, 64), (1, 300, 3)]
# what the decays are made of a uniform number
DECAYS = {
    "any": lambda u: u,
    "nothing is kept": torch.zeros_like,
    "all is kept": torch.ones_like,
    "nearly all": lambda u: 1 - 1e-6 * u,
    "strong": lambda u: 10.0 ** (-40 * u),
    "negative": lambda u: 2 * u - 1,
    "now and then": lambda u: (u > 0.1).to(u),
}
every_decay = pytest.mark.parametrize("decay", DECAYS)
every_type = pytest.mark.parametrize("dtype", PRECISION, ids=str)


def draw(shape, decay="any", dtype=torch.float64):
    rng = torch.Generator().manual_seed(0)
    a = DECAYS[decay](torch.rand(shape, generator=rng, dtype=torch.float64))
    x = torch.randn(shape, generator=rng, dtype=torch.float64)
    return [tensor.to(dtype).requires_grad_() for tensor in (a, x)]


def outcome(form, a, x):
    """Return the result and both gradients of its weighted sum."""
    y = form(a, x)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return [y.detach(), *torch.autograd.grad((y * weights.to(y)).sum(), (a, x))]


def in_double(inputs):
    return [tensor.detach().double().requires_grad_() for tensor in inputs]


@every_type
@every_decay
def test_values_and_gradients_are_those_of_the_equation(decay, dtype):
    for shape in SHAPES:
        inputs = draw(shape, decay, dtype)
        truth = outcome(linear_scan_ref, *in_double(inputs))
        for result, exact in zip(outcome(linear_scan, *inputs), truth, strict=True):
            assert result.dtype == dtype
            assert relative_error(result, exact) <= PRECISION[dtype], shape


@every_type
@every_decay
def test_single_reads_and_their_gradients_are_those_of_the_whole(decay, dtype):
    for shape in SHAPES:
        inputs = draw(shape, decay, dtype)
        at = torch.randint(shape[1], (shape[0], 1), generator=torch.Generator().manual_seed(2))
        truth = outcome(
            lambda a, x, at=at: gather_reads(linear_scan_ref(a, x), at), *in_double(inputs)
        )
        results = outcome(lambda a, x, at=at: linear_scan_read(a, x, at), *inputs)
        for result, exact in zip(results, truth, strict=True):
            assert relative_error(result, exact) <= PRECISION[dtype], shape


def test_the_equation_is_a_sum_over_all_tokens_before():
    a, x = draw((2, 9, 3))
    for t in range(9):
        h = sum(a[:, s + 1 : t + 1].prod(dim=1) * x[:, s] for s in range(t + 1))
        assert relative_error(linear_scan_ref(a, x)[:, t], h) <= 1e-14


def test_gradients_are_those_of_finite_differences():
    at = torch.tensor([[3], [0]])
    assert torch.autograd.gradcheck(linear_scan, draw((2, 5, 3)))
    assert torch.autograd.gradcheck(lambda a, x: linear_scan_read(a, x, at), draw((2, 5, 3)))


def test_later_tokens_have_no_part_in_a_read():
    a, x = draw((2, 9, 5))
    gradients = torch.autograd.grad(linear_scan_read(a, x, torch.tensor([[3], [0]])).sum(), (a, x))
    assert all(not gradient[0, 4:].any() and not gradient[1, 1:].any() for gradient in gradients)
    assert gradients[1][0, :4].all()


def test_other_types_are_computed_by_torch():
    a, x = (tensor.bfloat16() for tensor in draw((2, 5, 3)))
    assert torch.equal(linear_scan(a, x), linear_scan_ref(a, x))
    at = torch.tensor([[4], [1]])
    assert torch.equal(linear_scan_read(a, x, at), gather_reads(linear_scan_ref(a, x), at))


def test_nan_stays_in_its_channel():
    a, x = (tensor.detach() for tensor in draw((2, 9, 5)))
    whole, broken = linear_scan(a, x), a.clone()
    broken[1, 4, 2] = torch.nan
    h = linear_scan(broken, x)
    assert h[1, 4:, 2].isnan().all()
    h[1, 4:, 2] = whole[1, 4:, 2]
    assert torch.equal(h, whole)


def test_inputs_need_not_be_contiguous_and_one_kernel_serves_all_layouts():
    from mecheval.models.ops.kernels.linear_scan import backward, forward

    for dtype in PRECISION:
        a, x = draw((3, 6, 10), dtype=dtype)
        strided = [
            tensor.detach().repeat_interleave(2, -1)[..., ::2].requires_grad_() for tensor in (a, x)
        ]
        for result, exact in zip(
            outcome(linear_scan, *strided), outcome(linear_scan, a, x), strict=True
        ):
            assert torch.equal(result, exact)
    assert len(forward.signatures) == len(backward.signatures) == 2


def test_training_keeps_the_inputs_and_nothing_else():
    inputs, kept = draw((2, 5, 3)), []
    with saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        linear_scan(*inputs)
    assert [tensor.data_ptr() for tensor in kept] == [tensor.data_ptr() for tensor in inputs]


def test_the_recurrence_continues_from_an_edit():
    a, x = (tensor.detach() for tensor in draw((3, 9, 4)))
    states = linear_scan_ref(a, x)
    edited = states.clone()
    edited[0, 2], edited[1, 0], edited[1, 5, 3] = 7.0, -1.0, 2.0
    h, truth = torch.zeros(3, 4, dtype=torch.float64), []
    for t in range(9):
        h = a[:, t] * h + x[:, t]
        h = torch.where(edited[:, t] != states[:, t], edited[:, t], h)
        truth.append(h)
    result = propagate_edit(a, x, states, edited)
    assert relative_error(result, torch.stack(truth, dim=1)) <= 1e-14
    assert torch.equal(result[0, 2], edited[0, 2]), "an edit is kept to the bit"
    assert torch.equal(result[0, :2], states[0, :2]), "nothing happens before an edit"
    assert torch.equal(result[2], states[2])
    assert propagate_edit(a, x, states, states) is states


def test_the_complement_of_a_decay_is_precise_everywhere_and_its_slope_is_bounded():
    for dtype, precision in ((torch.float64, 1e-15), (torch.float32, 1e-6)):
        powers = -(10.0 ** torch.linspace(-12, 2, 50, dtype=torch.float64))
        log_a = powers.to(dtype).requires_grad_()
        y = complement(log_a[None, :, None])
        truth = (-torch.expm1(2 * log_a.detach().double())).sqrt()
        assert ((y[0, :, 0] - truth).abs() <= precision * truth).all()
        (slope,) = torch.autograd.grad(y.sum(), log_a)
        exact = -(2 * powers).exp() / truth
        steep = 1 / (2 * truth) > STEEPEST
        assert relative_error(slope[~steep], exact[~steep]) <= 1e-6
        assert steep.any()
        assert (slope[steep] >= -2 * STEEPEST).all()
    beyond = torch.tensor([[[0.0], [1.0]]], requires_grad=True)  # 1: an edit made it grow
    y = complement(beyond)
    assert not y.any()
    assert torch.autograd.grad(y.sum(), beyond)[0].isfinite().all()
