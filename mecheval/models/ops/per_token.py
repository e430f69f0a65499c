"""Ops that treat every token separately: the norm, the MLP, Mamba's gate and its step sizes."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mecheval.models.ops import Stream
from mecheval.models.ops.compiled import apply_kernels, not_compiled, once_differentiable, run

Rows = Float[Tensor, "... channel"]
Channels = Float[Tensor, " channel"]
In = Float[Tensor, "hidden channel"]
Hidden = Float[Tensor, " hidden"]
Out = Float[Tensor, "channel hidden"]
Inputs = Float[Tensor, "batch time input"]
Weight = Float[Tensor, "channel input"]
FEW = 32  # inputs of `softplus_linear`; for more, a matrix product is faster


def rms_norm(x: Rows, weight: Channels, eps: float) -> Rows:
    """Return w ∘ x / √(mean(x²) + ε), root mean square normalisation (Zhang and Sennrich 2019)."""
    if not_compiled(x, weight) or not x.numel():
        return rms_norm_ref(x, weight, eps)
    return _Norm.apply(x.contiguous(), weight, eps)  # type: ignore[no-untyped-call]


def rms_norm_ref(x: Rows, weight: Channels, eps: float) -> Rows:
    return weight * x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)


def mlp(x: Rows, W1: In, b1: Hidden, W2: Out, b2: Channels) -> Rows:
    """Return W₂ gelu(W₁ x + b₁) + b₂, with the exact GELU, x Φ(x).

    It is a block's state mixer (paper §4.1). Between the products, one kernel saves the slope of
    GELU for backward.
    """
    if not_compiled(x, W1, b1, W2, b2) or not x.numel():
        return mlp_ref(x, W1, b1, W2, b2)
    weights = W1, b1, W2, b2, torch.is_grad_enabled()
    return _MLP.apply(x.contiguous(), *weights)  # type: ignore[no-untyped-call]


def mlp_ref(x: Rows, W1: In, b1: Hidden, W2: Out, b2: Channels) -> Rows:
    return F.linear(F.gelu(F.linear(x, W1, b1)), W2, b2)


def silu_gate(y: Stream, z: Stream) -> Stream:
    """Return y ∘ silu(z), if possible by a kernel that computes silu(z) again for backward."""
    if not_compiled(y, z):
        return silu_gate_ref(y, z)
    from mecheval.models.ops.kernels.per_token import gate_backward, gate_forward

    return apply_kernels((gate_forward, gate_backward), y.shape, 2, y.contiguous(), z.contiguous())


def silu_gate_ref(y: Stream, z: Stream) -> Stream:
    return y * F.silu(z)


def softplus_linear(x: Inputs, weight: Weight, bias: Channels) -> Stream:
    """Return softplus(W x + b), for few inputs x: Mamba's step sizes."""
    if x.shape[2] > FEW or not x.numel() or not_compiled(x, weight, bias):
        return softplus_linear_ref(x, weight, bias)
    from mecheval.models.ops.kernels import GROUP
    from mecheval.models.ops.kernels.per_token import softplus_backward, softplus_forward

    if missing := -x.shape[2] % GROUP:
        x, weight = F.pad(x, (0, missing)), F.pad(weight, (0, missing))
    shape, rows = (*x.shape[:2], len(weight)), weight.t().contiguous()
    return apply_kernels(
        (softplus_forward, softplus_backward), shape, 1, x.contiguous(), rows, bias
    )


def softplus_linear_ref(x: Inputs, weight: Weight, bias: Channels) -> Stream:
    return F.softplus(F.linear(x, weight, bias))


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        from mecheval.models.ops.kernels.per_token import norm_forward

        rows, y = x.view(-1, x.shape[-1]), torch.empty_like(x)
        scale = x.new_empty(len(rows))
        run(norm_forward, rows, weight, y.view_as(rows), scale, eps)
        ctx.save_for_backward(rows, weight, scale)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        from mecheval.models.ops.kernels.per_token import norm_backward

        rows, weight, scale = ctx.saved_tensors
        gx, gweight = torch.empty_like(rows), torch.zeros_like(weight)
        run(norm_backward, rows, weight, scale, g.contiguous().view_as(rows), gx, gweight)
        return gx.view_as(g), gweight, None


class _MLP(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *weights: Any) -> Tensor:
        from mecheval.models.ops.kernels.per_token import gelu_forward

        W1, b1, W2, b2, training = weights
        rows = x.view(-1, x.shape[-1])
        hidden = rows @ W1.t()
        slope = torch.empty_like(hidden if training else hidden[:0])
        run(gelu_forward, hidden, b1, slope)
        ctx.save_for_backward(rows, W1, W2, hidden, slope)
        return torch.addmm(b2, hidden, W2.t()).view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        from mecheval.models.ops.kernels.per_token import gelu_backward

        rows, W1, W2, hidden, slope = ctx.saved_tensors
        up, gb1 = g.reshape(rows.shape), hidden.new_zeros(len(W1))
        down = up @ W2
        run(gelu_backward, down, slope, gb1)
        gW1, gW2 = down.t() @ rows, up.t() @ hidden
        return (down @ W1).view_as(g), gW1, gb1, gW2, up.sum(dim=0), None
