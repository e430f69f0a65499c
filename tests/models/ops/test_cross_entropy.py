"""The loss is torch's in values and gradients, and not finite where torch's is not."""

import math
from functools import partial

import pytest
import torch
from support.numpy_reference import largest_error

from mecheval.models.ops.cross_entropy import cross_entropy, cross_entropy_ref


def draw_inputs(rows, vocab, dtype=torch.float64, scale=3.0):
    """Draw logits with the vocabulary first in memory, as in training."""
    rng = torch.Generator().manual_seed(rows + vocab)
    logits = (scale * torch.randn(vocab, rows, generator=rng, dtype=dtype)).t().requires_grad_()
    return logits, torch.randint(vocab, (rows,), generator=rng)


@pytest.mark.parametrize("scale", [1e-3, 3.0, 40.0])
@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (3, 7), (32, 8195)], ids=str)
def test_it_is_torchs_in_values_and_gradients(shape, scale):
    for dtype, error in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        logits, answers = draw_inputs(*shape, dtype, scale)
        forms = (partial(form, answers=answers) for form in (cross_entropy, cross_entropy_ref))
        assert largest_error(*forms, [logits], least=1e-5) < error


def test_the_gradient_of_a_multiple_is_that_of_finite_differences():
    logits, answers = draw_inputs(3, 5)
    assert torch.autograd.gradcheck(lambda x: 2.5 * cross_entropy(x, answers), [logits])


def test_backward_can_be_repeated():
    logits, answers = draw_inputs(3, 5)
    loss = cross_entropy(logits, answers)
    (once,) = torch.autograd.grad(loss, logits, retain_graph=True)
    for times in (1, 2, 3):
        loss.backward(retain_graph=True)
        torch.testing.assert_close(logits.grad, times * once)


def test_a_nearly_certain_answer_has_a_small_loss_above_zero():
    loss = cross_entropy(torch.tensor([[1000.0], [990.0]]).t(), torch.tensor([0]))
    assert loss.item() == pytest.approx(math.log1p(math.exp(-10)), rel=0.01)


@pytest.mark.parametrize("place", [0, 5, 8])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_loss_of_non_finite_logits_is_nan(value, place):
    logits, answers = draw_inputs(4, 9, torch.float32)
    logits = logits.detach()
    logits[2, place] = value
    assert cross_entropy(logits, answers).isnan()


def test_logits_of_minus_infinity_are_ignored():
    logits, answers = draw_inputs(4, 9, torch.float32)
    masked = logits.detach().clone()
    masked[:, 3] = -math.inf
    answers[:] = 2
    torch.testing.assert_close(cross_entropy(masked, answers), cross_entropy_ref(masked, answers))


def test_any_layout_and_precision_is_accepted():
    logits, answers = draw_inputs(6, 5)
    torch.testing.assert_close(
        cross_entropy(logits.contiguous(), answers), cross_entropy_ref(logits, answers)
    )
    short = logits.detach().bfloat16()
    assert torch.equal(cross_entropy(short, answers), cross_entropy_ref(short, answers))


@pytest.mark.parametrize("answer", [-1, 5, 10**6])
def test_an_answer_outside_the_vocabulary_is_rejected(answer):
    logits, answers = draw_inputs(6, 5)
    answers[2] = answer
    with pytest.raises(IndexError, match="out of bounds"):
        cross_entropy(logits, answers)
