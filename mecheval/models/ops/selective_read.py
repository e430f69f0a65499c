"""Mamba's selective scan read at one token of each row, as in the last layer of a single query.

    y_q = Σ_{s≤q} Σ_n C_qn exp(A_n Σ_{s<r≤q} dt_r) B_sn dt_s x_s + D x_q

is the recurrence written out: no state is carried, neither forward nor backward.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mecheval.models.mixer_options import ScanBackend
from mecheval.models.ops import gather_reads
from mecheval.models.ops.compiled import not_compiled, once_differentiable, run
from mecheval.models.ops.selective_scan import (
    Channels,
    Decays,
    Directions,
    Skips,
    lay_out,
    selective_scan,
)


def selective_read(
    x: Channels,
    dt: Channels,
    A: Decays,
    B: Directions,
    C: Float[Tensor, "batch 1 d_state"],
    D: Skips,
    at: Int[Tensor, "batch 1"],
    backend: ScanBackend = "auto",
) -> Float[Tensor, "batch 1 d_inner"]:
    """Return what `selective_scan` returns at the token `at` of each row, given C there."""
    inputs = (x, dt, A, B, C, D)
    if backend not in ("auto", "numba") or not_compiled(*inputs):
        C = torch.zeros_like(B).scatter(1, at[..., None].expand_as(C), C)
        return gather_reads(selective_scan(x, dt, A, B, C, D, backend=backend), at)
    laid_out = *lay_out(*inputs), at[:, 0].contiguous()
    return _CompiledRead.apply(*laid_out)[:, None]  # type: ignore[no-untyped-call]


class _CompiledRead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        from mecheval.models.ops.kernels.selective_read import kernels
        from mecheval.models.ops.kernels.selective_scan import block_width

        ctx.save_for_backward(*inputs)
        y = torch.empty_like(inputs[0][:, 0])
        forward, ctx.kernel = kernels(block_width(len(inputs[2])))
        run(forward, *inputs, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors
        # the kernel writes those of x, dt and A, and adds to the others
        gradients = *map(torch.empty_like, inputs[:3]), *map(torch.zeros_like, inputs[3:-1])
        run(ctx.kernel, *inputs, g.contiguous(), *gradients)
        return *gradients, None
