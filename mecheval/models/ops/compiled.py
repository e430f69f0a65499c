"""Whether the compiled kernels can take some tensors, and how they are called."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

COMPILED = (torch.float32, torch.float64)
DENORMAL = 5e-324


def not_compiled(*inputs: Tensor) -> str:
    """What keeps these from the kernels, if anything does."""
    dtype = inputs[0].dtype
    if dtype in COMPILED and all(tensor.dtype == dtype and tensor.is_cpu for tensor in inputs):
        return ""
    return ", ".join(sorted({f"{tensor.dtype} on {tensor.device}".removeprefix("torch.") for tensor in inputs}))


def run(kernel: Callable[..., None], *given: Tensor | int | float) -> None:
    """Calls a kernel with the arrays of these tensors.

    Meanwhile denormal numbers are 0: states that decay end in them, each an assist of 100 cycles and more on some
    processors.
    """
    arrays = (part.detach().numpy() if isinstance(part, Tensor) else part for part in given)
    if DENORMAL == 0:  # as the processor says it
        kernel(*arrays)
        return
    torch.set_flush_denormal(True)
    try:
        kernel(*arrays)
    finally:
        torch.set_flush_denormal(False)


def first_derivative(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A `backward` that has no derivative itself, and says so to who asks for one.

    torch's own decorator prepares for that at every call, which takes longer than a call of a small kernel.
    """
    guarded = once_differentiable(backward)

    @wraps(backward)
    def called(ctx: Any, *grads: Tensor) -> Any:
        return (guarded if torch.is_grad_enabled() else backward)(ctx, *grads)

    return called
