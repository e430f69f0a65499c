"""Causal softmax attention: o_t = Σ_{s≤t} softmax_s(q_t·k_s / √d_head) v_s.

With a window of w tokens, the sum is over t−w < s ≤ t; 0 is the whole past.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mecheval.models.ops import Reads, gather_reads
from mecheval.models.ops.compiled import not_compiled, once_differentiable, run

Heads = Float[Tensor, "batch time head d_head"]
Weights = Float[Tensor, "batch head time source"]
Stream = Float[Tensor, "batch time d_model"]
Projections = Float[Tensor, "q_k_and_v d_model"]
Output = Float[Tensor, "batch reads d_heads"]
Queries = Float[Tensor, "batch reads head d_head"]
Seen = Bool[Tensor, "*batch reads source"]
SHORT = 128  # tokens up to which computing all weights at once is faster than in pieces


def causal_attention(q: Heads, k: Heads, v: Heads, window: int = 0) -> Heads:
    """Return what each head reads.

    Short documents take whole products with a compiled softmax in between; others take torch's
    kernel, whose memory does not grow with the square of the length.
    """
    window = window if window < q.shape[1] else 0
    if q.shape[1] > SHORT or not q.numel() or not_compiled(q, k, v):
        return window_attention(q, k, v, window) if window else flash_attention(q, k, v)
    return _Compiled.apply(q, k, v, window)  # type: ignore[no-untyped-call]


def flash_attention(q: Heads, k: Heads, v: Heads) -> Heads:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def window_attention(q: Heads, k: Heads, v: Heads, window: int) -> Heads:
    """Return what each head reads, in blocks of tokens that see their own and the one before.

    Its memory grows linearly with the length.
    """
    time, size = q.shape[1], max(window, SHORT)
    missing, places = -time % size, torch.arange(2 * size, device=q.device)
    q = F.pad(q, (0, 0, 0, 0, 0, missing))
    k, v = (F.pad(x, (0, 0, 0, 0, size, missing)) for x in (k, v))
    q, k, v = (x.reshape(len(x), -1, size, *x.shape[2:]) for x in (q, k, v))
    k, v = (torch.cat([x[:, :-1], x[:, 1:]], dim=2) for x in (k, v))
    seen = in_window(places[size:], 2 * size, window).repeat(q.shape[1], 1, 1, 1)
    seen[0, ..., :size] = False  # before the first token
    q, k, v = (x.transpose(2, 3) for x in (q, k, v))
    o = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return o.transpose(2, 3).flatten(1, 2)[:, :time]


def causal_attention_ref(q: Heads, k: Heads, v: Heads, window: int = 0) -> Heads:
    return torch.einsum("bhts,bshd->bthd", attention_weights(q, k, window), v)


def attention_weights(q: Heads, k: Heads, window: int = 0) -> Weights:
    """Return how much each position attends to each source; rows sum to 1."""
    logits = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(q.shape[-1])
    outside = torch.ones_like(logits, dtype=torch.bool).triu(1)
    if window:
        outside |= torch.ones_like(outside).tril(-window)
    return logits.masked_fill(outside, -torch.inf).softmax(dim=-1)


def attention_at(q: Queries, k: Heads, v: Heads, at: Reads, window: int = 0) -> Queries:
    """Return what each head reads, given queries at some positions only."""
    logits = torch.einsum("brhd,bshd->bhrs", q, k) / math.sqrt(q.shape[-1])
    seen = in_window(at, k.shape[1], window)[:, None]
    weights = logits.masked_fill(~seen, -torch.inf).softmax(dim=-1)
    return torch.einsum("bhrs,bshd->brhd", weights, v)


def in_window(at: Int[Tensor, "*batch reads"], sources: int, window: int) -> Seen:
    """Tell which sources the tokens at some positions see."""
    back = at[..., None] - torch.arange(sources, device=at.device)
    return (back >= 0) & (back < window) if window else back >= 0


def attention_read(x: Stream, weight: Projections, at: Reads, heads: int) -> Output:
    """Return what all heads read at some positions, without keys and values of all tokens.

    q·(W_k x) = (W_kᵀ q)·x   and   Σ_s a_s W_v x_s = W_v Σ_s a_s x_s
    """
    if not_compiled(x, weight) or not x.numel():
        return attention_read_ref(x, weight, at, heads)
    return _CompiledRead.apply(x.contiguous(), weight, at.contiguous(), heads)  # type: ignore[no-untyped-call]


def attention_read_ref(x: Stream, weight: Projections, at: Reads, heads: int) -> Output:
    shape = *x.shape[:2], 3, heads, len(weight) // (3 * heads)
    q, k, v = F.linear(x, weight).view(shape).unbind(dim=2)
    return gather_reads(flash_attention(q, k, v).flatten(start_dim=2), at)


class _Compiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
        from mecheval.models.ops.kernels.attention import softmax_forward

        ctx.shape, (q, k, v) = q.shape, (_fold_heads(x) for x in (q, k, v))
        weights, ctx.scale = torch.bmm(q, k.mT), 1 / math.sqrt(q.shape[-1])
        before = torch.ones_like(weights[0], dtype=torch.bool).tril(-window) if window else None
        if before is not None:
            weights.masked_fill_(before, -torch.inf)
        run(softmax_forward, weights, ctx.scale)
        if before is not None:  # the kernel's exponential is never quite 0
            weights.masked_fill_(before, 0)
        ctx.save_for_backward(q, k, v, weights)
        return _unfold_heads(torch.bmm(weights, v), ctx.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        from mecheval.models.ops.kernels.attention import softmax_backward

        (q, k, v, weights), g = ctx.saved_tensors, _fold_heads(g)
        glogits = torch.bmm(g, v.mT)
        run(softmax_backward, weights, glogits, ctx.scale)
        gradients = torch.bmm(glogits, k), torch.bmm(glogits.mT, q), torch.bmm(weights.mT, g)
        return *(_unfold_heads(x, ctx.shape) for x in gradients), None


def _fold_heads(x: Heads) -> Float[Tensor, "batch_head time d_head"]:
    return x.transpose(1, 2).flatten(end_dim=1)


def _unfold_heads(x: Float[Tensor, "batch_head time d_head"], shape: torch.Size) -> Heads:
    return x.view(shape[0], shape[2], shape[1], -1).transpose(1, 2)


class _CompiledRead(torch.autograd.Function):
    """Computes with heads first, then reads: (head, n, d_head) and (head, n, d_model)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, at: Tensor, heads: int) -> Tensor:
        from mecheval.models.ops.kernels.attention import read_forward

        W_q, W_k, W_v = weight.view(3, heads, -1, x.shape[2])
        inputs = gather_reads(x, at).view(1, -1, x.shape[2]).expand(heads, -1, -1)
        q = torch.bmm(inputs, W_q.mT)
        queries = torch.bmm(q, W_k)
        shares, means = x.new_empty(heads, at.numel(), x.shape[1]), torch.empty_like(queries)
        run(read_forward, queries, x, at, W_q.shape[1] ** -0.5, shares, means)
        ctx.save_for_backward(x, weight, at, inputs, q, queries, shares, means)
        return torch.bmm(means, W_v.mT).transpose(0, 1).reshape(*at.shape, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        from mecheval.models.ops.kernels.attention import read_backward

        x, weight, at, inputs, q, queries, shares, means = ctx.saved_tensors
        W_q, W_k, W_v = weight.view(3, len(q), -1, x.shape[2])
        g = g.reshape(q.shape[1], len(q), -1).transpose(0, 1)
        gqueries, gx = torch.empty_like(queries), torch.zeros_like(x)
        run(
            read_backward,
            queries,
            x,
            at,
            W_q.shape[1] ** -0.5,
            shares,
            torch.bmm(g, W_v),
            gqueries,
            gx,
        )
        gq = torch.bmm(gqueries, W_k.mT)
        index = at[..., None].expand(-1, -1, x.shape[2])
        gx.scatter_add_(1, index, torch.bmm(gq, W_q).sum(0).view(*at.shape, -1))
        gweight = [torch.bmm(gq.mT, inputs), torch.bmm(q.mT, gqueries), torch.bmm(g.mT, means)]
        return gx, torch.stack(gweight).view_as(weight), None, None
