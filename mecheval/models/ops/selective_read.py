"""Mamba's selective scan where only one token of each row is read, as in the last layer of a model that is asked once.

    y_q = Σ_{s≤q} Σ_n C_qn exp(A_n Σ_{s<r≤q} dt_r) B_sn dt_s x_s + D x_q

is what the recurrence comes to: no state is carried, so the way back needs no second one either.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mecheval.models.mixer_options import ScanBackend
from mecheval.models.ops.compiled import first_derivative, not_compiled, run
from mecheval.models.ops.reads import gathered
from mecheval.models.ops.selective_scan import Channels, Decays, Directions, Skips, laid_out, selective_scan


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
    """What `selective_scan` gives at the token `at` of each row, given C there."""
    inputs = (x, dt, A, B, C, D)
    if backend not in ("auto", "numba") or not_compiled(*inputs):
        C = torch.zeros_like(B).scatter(1, at[..., None].expand_as(C), C)
        return gathered(selective_scan(x, dt, A, B, C, D, backend=backend), at)
    return _CompiledRead.apply(*laid_out(*inputs), at[:, 0].contiguous())[:, None]  # type: ignore[no-untyped-call]


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
    @first_derivative
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors
        # to x, dt and A it writes, to the others it adds
        gradients = *map(torch.empty_like, inputs[:3]), *map(torch.zeros_like, inputs[3:-1])
        run(ctx.kernel, *inputs, g.contiguous(), *gradients)
        return *gradients, None
