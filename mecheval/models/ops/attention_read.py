"""Causal softmax attention at the positions that are read, without keys and values of all tokens:

q·(W_k x) = (W_kᵀ q)·x   and   Σ_s a_s W_v x_s = W_v Σ_s a_s x_s
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mecheval.models.ops import Reads, gather_reads
from mecheval.models.ops.causal_attention import flash_attention
from mecheval.models.ops.compiled import not_compiled, once_differentiable, run

Stream = Float[Tensor, "batch time d_model"]
Projections = Float[Tensor, "q_k_and_v d_model"]
Output = Float[Tensor, "batch reads d_heads"]


def attention_read(x: Stream, weight: Projections, at: Reads, heads: int) -> Output:
    """Return what all heads read at the positions `at`, before the output projection."""
    if not_compiled(x, weight) or not x.numel():
        return attention_read_ref(x, weight, at, heads)
    return _Compiled.apply(x.contiguous(), weight, at.contiguous(), heads)  # type: ignore[no-untyped-call]


def attention_read_ref(x: Stream, weight: Projections, at: Reads, heads: int) -> Output:
    shape = *x.shape[:2], 3, heads, len(weight) // (3 * heads)
    q, k, v = F.linear(x, weight).view(shape).unbind(dim=2)
    return gather_reads(flash_attention(q, k, v).flatten(start_dim=2), at)


class _Compiled(torch.autograd.Function):
    """Computes with heads first, then reads: (head, n, d_head) and (head, n, d_model)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, at: Tensor, heads: int) -> Tensor:
        from mecheval.models.ops.kernels.attention_read import forward

        W_q, W_k, W_v = weight.view(3, heads, -1, x.shape[2])
        inputs = gather_reads(x, at).view(1, -1, x.shape[2]).expand(heads, -1, -1)
        q = torch.bmm(inputs, W_q.mT)
        queries = torch.bmm(q, W_k)
        shares, means = x.new_empty(heads, at.numel(), x.shape[1]), torch.empty_like(queries)
        run(forward, queries, x, at, W_q.shape[1] ** -0.5, shares, means)
        ctx.save_for_backward(x, weight, at, inputs, q, queries, shares, means)
        return torch.bmm(means, W_v.mT).transpose(0, 1).reshape(*at.shape, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        from mecheval.models.ops.kernels.attention_read import backward

        x, weight, at, inputs, q, queries, shares, means = ctx.saved_tensors
        W_q, W_k, W_v = weight.view(3, len(q), -1, x.shape[2])
        g = g.reshape(q.shape[1], len(q), -1).transpose(0, 1)
        gqueries, gx = torch.empty_like(queries), torch.zeros_like(x)
        run(backward, queries, x, at, W_q.shape[1] ** -0.5, shares, torch.bmm(g, W_v), gqueries, gx)
        gq = torch.bmm(gqueries, W_k.mT)
        index = at[..., None].expand(-1, -1, x.shape[2])
        gx.scatter_add_(1, index, torch.bmm(gq, W_q).sum(0).view(*at.shape, -1))
        gweight = [torch.bmm(gq.mT, inputs), torch.bmm(q.mT, gqueries), torch.bmm(g.mT, means)]
        return gx, torch.stack(gweight).view_as(weight), None, None
