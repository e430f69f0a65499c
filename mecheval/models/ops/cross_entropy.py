"""The training loss: −log softmax(logits)_answer, averaged over rows."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mecheval.models.ops.compiled import not_compiled, once_differentiable, run

Logits = Float[Tensor, "row vocab"]
Answers = Int[Tensor, " row"]


def cross_entropy(logits: Logits, answers: Answers) -> Float[Tensor, ""]:
    """Return the mean loss over the rows.

    Where the vocabulary comes first in memory, one kernel computes loss and gradient from the same
    exponentials. It does not check bounds, so answers outside the vocabulary are left to torch,
    which raises.
    """
    least, most = torch.aminmax(answers) if answers.numel() else (0, -1)
    within = 0 <= int(least) <= int(most) < logits.shape[1]
    if not_compiled(logits) or not logits.t().is_contiguous() or not within:
        return cross_entropy_ref(logits, answers)
    return _Compiled.apply(logits.t(), answers.contiguous())  # type: ignore[no-untyped-call]


def cross_entropy_ref(logits: Logits, answers: Answers) -> Float[Tensor, ""]:
    return F.cross_entropy(logits, answers)


class _Compiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, answers: Tensor) -> Tensor:
        from mecheval.models.ops.kernels.cross_entropy import forward

        losses, slopes = logits.new_empty(len(answers)), torch.empty_like(logits)
        run(forward, logits, logits.amax(dim=0), answers, losses, slopes)
        ctx.save_for_backward(slopes)
        return losses.mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (slopes,) = ctx.saved_tensors
        return slopes * g, None
