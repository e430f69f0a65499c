"""An embedding and the head tied to it, with one gradient tensor for both.

The gradient of the rows is added in place to the head's; autograd would write it into a second
tensor as large as the vocabulary, and the sum of both into a third.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

Tokens = Int[Tensor, "batch time"]
Weight = Float[Tensor, "vocab d_model"]
Rows = Float[Tensor, "batch time d_model"]


def tied_embedding(tokens: Tokens, weight: Weight) -> tuple[Rows, Weight]:
    """Return the rows of the tokens, and the weight for the head."""
    if not tokens.is_cpu:  # elsewhere, sums into one row have no fixed order
        return tied_embedding_ref(tokens, weight)
    return _Tied.apply(tokens, weight)  # type: ignore[no-untyped-call]


def tied_embedding_ref(tokens: Tokens, weight: Weight) -> tuple[Rows, Weight]:
    return F.embedding(tokens, weight), weight


def few_logits(x: Rows, weight: Weight) -> Float[Tensor, "batch time vocab"]:
    """Return logits with the vocabulary first in memory, which is faster for a few rows."""
    return (weight @ x.flatten(end_dim=1).t()).t().view(*x.shape[:2], -1)


def few_logits_ref(x: Rows, weight: Weight) -> Float[Tensor, "batch time vocab"]:
    return F.linear(x, weight)


class _Tied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(tokens)
        return F.embedding(tokens, weight), weight.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        (tokens,), (rows, head) = ctx.saved_tensors, grads
        # `head` is the result of a matrix product that nothing else uses: it may be changed
        return None, head.index_add_(0, tokens.flatten(), rows.flatten(end_dim=1))
