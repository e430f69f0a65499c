"""Mamba's step sizes: y = softplus(W x + b), for few inputs x."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mecheval.models.ops.compiled import not_compiled, once_differentiable, run

Inputs = Float[Tensor, "batch time input"]
Outputs = Float[Tensor, "batch time channel"]
Weight = Float[Tensor, "channel input"]
Bias = Float[Tensor, " channel"]
FEW = 32  # inputs; for more, a matrix product is faster


def softplus_linear(x: Inputs, weight: Weight, bias: Bias) -> Outputs:
    if x.shape[2] > FEW or not x.numel() or not_compiled(x, weight, bias):
        return softplus_linear_ref(x, weight, bias)
    from mecheval.models.ops.kernels.softplus_linear import GROUP

    if missing := -x.shape[2] % GROUP:
        x, weight = F.pad(x, (0, missing)), F.pad(weight, (0, missing))
    return _Compiled.apply(x.contiguous(), weight, bias)  # type: ignore[no-untyped-call]


def softplus_linear_ref(x: Inputs, weight: Weight, bias: Bias) -> Outputs:
    return F.softplus(F.linear(x, weight, bias))


class _Compiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        from mecheval.models.ops.kernels.softplus_linear import forward

        inputs, y = weight.t().contiguous(), x.new_empty(*x.shape[:2], len(weight))
        ctx.save_for_backward(x, inputs, bias)
        run(forward, x, inputs, bias, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
        from mecheval.models.ops.kernels.softplus_linear import backward

        x, weight, bias = ctx.saved_tensors
        gx, gweight, gbias = torch.empty_like(x), torch.zeros_like(weight), torch.zeros_like(bias)
        run(backward, x, weight, bias, g.contiguous(), gx, gweight, gbias)
        return gx, gweight.t(), gbias
