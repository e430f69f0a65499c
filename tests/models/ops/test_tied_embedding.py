"""The one gradient of embedding and head is autograd's, whichever of both is used."""

import pytest
import torch
import torch.nn.functional as F

from mecheval.models.ops.tied_embedding import (
    few_logits,
    few_logits_ref,
    tied_embedding,
    tied_embedding_ref,
)

TOKENS = torch.tensor([[0, 3, 3], [6, 0, 3]])  # some more than once, some never


def both(rows, head):
    return F.linear(rows, head).exp().sum()


@pytest.mark.parametrize(
    "loss",
    [both, lambda rows, head: rows.exp().sum(), lambda rows, head: head.exp().sum()],
    ids=["both", "rows", "head"],
)
def test_the_gradient_is_autograds_own(loss):
    weight = torch.randn(
        7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    ).requires_grad_()
    result, expected = (
        torch.autograd.grad(loss(*tied(TOKENS, weight)), weight)[0]
        for tied in (tied_embedding, tied_embedding_ref)
    )
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)


def test_two_passes_add_up():
    weight = torch.ones(7, 4, requires_grad=True)
    for _ in range(2):
        both(*tied_embedding(TOKENS, weight)).backward()
    (once,) = torch.autograd.grad(both(*tied_embedding(TOKENS, weight)), weight)
    assert torch.equal(weight.grad, 2 * once)


def test_a_frozen_weight_has_no_gradient():
    rows, head = tied_embedding(TOKENS, torch.ones(7, 4))
    assert not rows.requires_grad
    assert not head.requires_grad


def test_few_logits_have_the_vocabulary_first_in_memory():
    rng = torch.Generator().manual_seed(0)
    x, weight = (
        torch.randn(size, generator=rng, dtype=torch.float64) for size in ((5, 2, 4), (7, 4))
    )
    result = few_logits(x, weight)
    torch.testing.assert_close(result, few_logits_ref(x, weight))
    assert result.flatten(end_dim=1).t().is_contiguous()
