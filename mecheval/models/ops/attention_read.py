"""Causal softmax attention of single tokens: y_r = Σ_{s≤at_r} softmax_s(q_r·x_s · scale) x_s."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mecheval.models.ops.compiled import first_derivative, not_compiled, run
from mecheval.models.ops.reads import Reads

Stream = Float[Tensor, "batch time channel"]
Asked = Float[Tensor, "head batch reads channel"]


def attention_read(q: Asked, x: Stream, at: Reads, scale: float) -> Asked:
    """What the tokens at `at` see: keys and values are the stream itself."""
    if not_compiled(q, x) or not q.numel():
        return attention_read_ref(q, x, at, scale)
    return _Compiled.apply(q.contiguous(), x.contiguous(), at.contiguous(), scale)  # type: ignore[no-untyped-call]


def attention_read_ref(q: Asked, x: Stream, at: Reads, scale: float) -> Asked:
    future = torch.arange(x.shape[1], device=x.device) > at[..., None]
    logits = torch.einsum("hbrc,bsc->hbrs", q, x) * scale
    return torch.einsum("hbrs,bsc->hbrc", logits.masked_fill(future, -torch.inf).softmax(dim=-1), x)


class _Compiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, x: Tensor, at: Tensor, scale: float) -> Tensor:
        from mecheval.models.ops.kernels.attention_read import forward

        weights, y = q.new_empty(*q.shape[:3], x.shape[1]), torch.empty_like(q)
        run(forward, q, x, at, scale, weights, y)
        ctx.save_for_backward(q, x, at, weights)
        ctx.scale = scale
        return y

    @staticmethod
    @first_derivative
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        from mecheval.models.ops.kernels.attention_read import backward

        q, x, at, weights = ctx.saved_tensors
        gq, gx = torch.empty_like(q), torch.zeros_like(x)
        run(backward, q, x, at, ctx.scale, weights, g.contiguous(), gq, gx)
        return gq, gx, None, None
