"""The loss of a model: −log softmax(logits)_answer, the mean over rows."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mecheval.models.ops.compiled import first_derivative, not_compiled, run

Logits = Float[Tensor, "row vocab"]
Answers = Int[Tensor, " row"]


def cross_entropy(logits: Logits, answers: Answers) -> Float[Tensor, ""]:
    """Where the vocabulary comes first in memory, in one kernel that has the gradient besides: it takes the same
    exponentials. It would write anywhere for an answer that is no token, so torch refuses those.
    """
    least, most = torch.aminmax(answers) if answers.numel() else (0, -1)
    if not_compiled(logits) or not logits.t().is_contiguous() or not 0 <= int(least) <= int(most) < logits.shape[1]:
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
    @first_derivative
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (slopes,) = ctx.saved_tensors
        return slopes * g, None
