"""Calling the compiled kernels, and deciding whether they can take some tensors."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
import torch.autograd.function
from torch import Tensor

COMPILED = (torch.float32, torch.float64)
DENORMAL = 5e-324


def not_compiled(*inputs: Tensor) -> str:
    """Return the types and devices that the kernels cannot take, or nothing if they can."""
    dtype = inputs[0].dtype
    if dtype in COMPILED and all(tensor.dtype == dtype and tensor.is_cpu for tensor in inputs):
        return ""
    kinds = {f"{tensor.dtype} on {tensor.device}".removeprefix("torch.") for tensor in inputs}
    return ", ".join(sorted(kinds))


def run(kernel: Callable[..., None], *arguments: Tensor | int | float) -> None:
    """Call a kernel with the arrays of these tensors, while denormal numbers count as 0.

    States that decay end in denormals, each of which costs some processors 100 cycles and more.
    """
    arrays = (part.detach().numpy() if isinstance(part, Tensor) else part for part in arguments)
    if DENORMAL == 0:  # the processor flushes denormals already
        kernel(*arrays)
        return
    torch.set_flush_denormal(True)
    try:
        kernel(*arrays)
    finally:
        torch.set_flush_denormal(False)


def apply_kernels(
    kernels: tuple[Callable[..., None], Callable[..., None]],
    shape: Sequence[int],
    written: int,
    *inputs: Tensor,
) -> Tensor:
    """Return what the first kernel writes into a tensor of this shape; the second is its gradient.

    The gradient's kernel takes the inputs and the output's gradient, writes the gradients of the
    first `written` inputs and adds to those of the others. Inputs of integers have none, and are
    the last.
    """
    return _Compiled.apply(kernels, shape, written, *inputs)  # type: ignore[no-untyped-call]


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Make a second derivative through this `backward` an error.

    torch's decorator of this name prepares for one at every call, which takes longer than a small
    kernel; this one does so only while gradients of gradients are recorded.
    """
    guarded = torch.autograd.function.once_differentiable(backward)

    @wraps(backward)
    def call(ctx: Any, *grads: Tensor) -> Any:
        return (guarded if torch.is_grad_enabled() else backward)(ctx, *grads)

    return call


class _Compiled(torch.autograd.Function):
    """Saves only its inputs: the backward kernel computes again what it needs."""

    @staticmethod
    def forward(ctx: Any, kernels: Any, shape: Any, written: int, *inputs: Tensor) -> Tensor:
        kernel, ctx.gradient = kernels
        ctx.written = written
        ctx.save_for_backward(*inputs)
        y = inputs[0].real.new_empty(shape)
        run(kernel, *inputs, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        inputs: tuple[Tensor, ...] = ctx.saved_tensors
        numbers = [x for x in inputs if x.is_floating_point() or x.is_complex()]
        gradients = [torch.empty_like(x) for x in numbers[: ctx.written]]
        gradients += [torch.zeros_like(x) for x in numbers[ctx.written :]]
        run(ctx.gradient, *inputs, g.contiguous(), *gradients)
        return None, None, None, *gradients, *[None] * (len(inputs) - len(numbers))
