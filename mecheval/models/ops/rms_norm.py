"""Root mean square layer normalisation (Zhang and Sennrich 2019): y = w ∘ x / √(mean(x²) + ε)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mecheval.models.ops.compiled import not_compiled, once_differentiable, run

Rows = Float[Tensor, "... channel"]
Weight = Float[Tensor, " channel"]


def rms_norm(x: Rows, weight: Weight, eps: float) -> Rows:
    if not_compiled(x, weight) or not x.numel():
        return rms_norm_ref(x, weight, eps)
    return _CompiledNorm.apply(x.contiguous(), weight, eps)  # type: ignore[no-untyped-call]


def rms_norm_ref(x: Rows, weight: Weight, eps: float) -> Rows:
    return weight * x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)


class _CompiledNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        from mecheval.models.ops.kernels.rms_norm import forward

        rows, y = x.view(-1, x.shape[-1]), torch.empty_like(x)
        scale = x.new_empty(len(rows))
        run(forward, rows, weight, y.view_as(rows), scale, eps)
        ctx.save_for_backward(x, weight, scale)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        from mecheval.models.ops.kernels.rms_norm import backward

        x, weight, scale = ctx.saved_tensors
        rows, gx, gweight = x.view(-1, x.shape[-1]), torch.empty_like(x), torch.zeros_like(weight)
        run(backward, rows, weight, scale, g.contiguous().view_as(rows), gx.view_as(rows), gweight)
        return gx, gweight, None
