"""The state mixer of a block (paper §4.1): W₂ gelu(W₁ x + b₁) + b₂, with the exact GELU, x Φ(x)."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mecheval.models.ops.compiled import not_compiled, once_differentiable, run

Rows = Float[Tensor, "... d_model"]
In = Float[Tensor, "hidden d_model"]
Hidden = Float[Tensor, " hidden"]
Out = Float[Tensor, "d_model hidden"]
Model = Float[Tensor, " d_model"]


def mlp(x: Rows, W1: In, b1: Hidden, W2: Out, b2: Model) -> Rows:
    """Compute the MLP; between its products, one kernel saves the slope of GELU for backward."""
    if not_compiled(x, W1, b1, W2, b2) or not x.numel():
        return mlp_ref(x, W1, b1, W2, b2)
    weights = W1, b1, W2, b2, torch.is_grad_enabled()
    return _Compiled.apply(x.contiguous(), *weights)  # type: ignore[no-untyped-call]


def mlp_ref(x: Rows, W1: In, b1: Hidden, W2: Out, b2: Model) -> Rows:
    return F.linear(F.gelu(F.linear(x, W1, b1)), W2, b2)


class _Compiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *weights: Any) -> Tensor:
        from mecheval.models.ops.kernels.gelu import forward

        W1, b1, W2, b2, training = weights
        rows = x.view(-1, x.shape[-1])
        hidden = rows @ W1.t()
        slope = torch.empty_like(hidden if training else hidden[:0])
        run(forward, hidden, b1, slope)
        ctx.save_for_backward(rows, W1, W2, hidden, slope)
        return torch.addmm(b2, hidden, W2.t()).view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        from mecheval.models.ops.kernels.gelu import backward

        rows, W1, W2, hidden, slope = ctx.saved_tensors
        up, gb1 = g.reshape(rows.shape), hidden.new_zeros(len(W1))
        down = up @ W2
        run(backward, down, slope, gb1)
        gW1, gW2 = down.t() @ rows, up.t() @ hidden
        return (down @ W1).view_as(g), gW1, gb1, gW2, up.sum(dim=0), None
