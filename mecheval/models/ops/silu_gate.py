"""Mamba's gate: y ∘ silu(z)."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mecheval.models.ops.compiled import not_compiled, once_differentiable, run

Stream = Float[Tensor, "batch time channel"]


def silu_gate(y: Stream, z: Stream) -> Stream:
    """Return y ∘ silu(z), if possible by a kernel that computes silu(z) again for backward."""
    if not_compiled(y, z):
        return silu_gate_ref(y, z)
    return _CompiledGate.apply(y.contiguous(), z.contiguous())  # type: ignore[no-untyped-call]


def silu_gate_ref(y: Stream, z: Stream) -> Stream:
    return y * F.silu(z)


class _CompiledGate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, z: Tensor) -> Tensor:
        from mecheval.models.ops.kernels.silu_gate import forward

        ctx.save_for_backward(y, z)
        out = torch.empty_like(y)
        run(forward, *(tensor.view(-1) for tensor in (y, z, out)))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        from mecheval.models.ops.kernels.silu_gate import backward

        y, z = ctx.saved_tensors
        gy, gz = torch.empty_like(y), torch.empty_like(z)
        run(backward, *(tensor.view(-1) for tensor in (y, z, g.contiguous(), gy, gz)))
        return gy, gz
