"""A linear recurrence of vectors, every channel by itself, and the gates of Griffin's.

    h_t = a_t ∘ h_{t−1} + x_t

De et al. (2024), §2.4: a says what each channel keeps, x is what is written, h is 0 before the
first token.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mecheval.models.ops import Stream, gather_reads
from mecheval.models.ops.compiled import apply_kernels, not_compiled

STEEPEST = 1000.0  # slope of a square root


def linear_scan(a: Stream, x: Stream) -> Stream:
    """Return every h_t, by a kernel if it can take a and x."""
    if not_compiled(a, x) or not x.numel():
        return linear_scan_ref(a, x)
    from mecheval.models.ops.kernels.linear_scan import backward, forward

    return apply_kernels((forward, backward), x.shape, 2, a.contiguous(), x.contiguous())


def linear_scan_ref(a: Stream, x: Stream) -> Stream:
    """Compute the equation token by token."""
    h, states = torch.zeros_like(x[:, 0]), []
    # slicing token by token would be quadratic: the gradient of each slice is as large as the whole
    for a_t, x_t in zip(a.unbind(1), x.unbind(1), strict=True):
        h = a_t * h + x_t
        states.append(h)
    return torch.stack(states, dim=1)


def linear_scan_read(
    a: Stream, x: Stream, at: Int[Tensor, "batch 1"]
) -> Float[Tensor, "batch 1 channel"]:
    """Return h at one token of each row; no other is kept."""
    if not_compiled(a, x) or not x.numel():
        return linear_scan_read_ref(a, x, at)
    from mecheval.models.ops.kernels.linear_scan import read_backward, read_forward

    inputs = a.contiguous(), x.contiguous(), at[:, 0].contiguous()
    return apply_kernels((read_forward, read_backward), x[:, 0].shape, 2, *inputs)[:, None]


def linear_scan_read_ref(
    a: Stream, x: Stream, at: Int[Tensor, "batch 1"]
) -> Float[Tensor, "batch 1 channel"]:
    return gather_reads(linear_scan_ref(a, x), at)


def propagate_edit(a: Stream, x: Stream, states: Stream, edited: Stream) -> Stream:
    """Return every h_t after edits of some: the recurrence continues from an edited one.

    An edited channel forgets everything before and is written as it is.
    """
    if edited is states:
        return states
    touched = edited != states
    return linear_scan_ref(torch.where(touched, 0, a), torch.where(touched, edited, x))


def complement(log_a: Stream) -> Stream:
    """Return √(1 − a²), which keeps the size of h when inputs of size 1 are multiplied by it.

    It is precise also where a is nearly 1, and 0 where an edit made a larger. The slope of the root
    is infinite at a = 1; as in RecurrentGemma it is at most 1000.
    """
    return _BoundedRoot.apply(-torch.expm1(2 * log_a.clamp(max=0)))  # type: ignore[no-untyped-call]


class _BoundedRoot(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        root = x.sqrt()
        ctx.save_for_backward(root)
        return root

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (root,) = ctx.saved_tensors
        return grads[0] / (2 * root).clamp(min=1 / STEEPEST)
