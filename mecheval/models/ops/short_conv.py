"""Causal depthwise convolution with a few taps: y_t = b + Σ_{i<width} w_{width−1−i} x_{t−i}."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mecheval.models.ops import Stream
from mecheval.models.ops.compiled import apply_kernels, not_compiled

Taps = Float[Tensor, "channel width"]
Bias = Float[Tensor, " channel"]
TAPS = 4  # at most, of the compiled kernels


def short_conv(x: Stream, weight: Taps, bias: Bias | None = None) -> Stream:
    """Sum shifted products; on the CPU and for few taps, faster than transposing the stream."""
    return _ShiftedProducts.apply(x, weight, bias)  # type: ignore[no-untyped-call]


def short_conv_silu(x: Stream, weight: Taps, bias: Bias | None = None) -> Stream:
    """Return silu(y), if possible by one kernel, which reads the stream once for all taps."""
    if weight.shape[1] > TAPS or not_compiled(x, weight) or not x.numel():
        return F.silu(short_conv(x, weight, bias))
    from mecheval.models.ops.kernels.short_conv import backward, forward

    bias = x.new_zeros(x.shape[2]) if bias is None else bias
    taps = torch.stack(weight.unbind(1)[::-1])  # a row for each, the one on x_t first
    return apply_kernels((forward, backward), x.shape, 1, x.contiguous(), taps, bias)


def short_conv_ref(x: Stream, weight: Taps, bias: Bias | None = None) -> Stream:
    width = weight.shape[1]
    steps = []
    for t in range(x.shape[1]):
        y = torch.zeros_like(x[:, 0])
        for i in range(min(width, t + 1)):
            y = y + weight[:, width - 1 - i] * x[:, t - i]
        steps.append(y if bias is None else y + bias)
    return torch.stack(steps, dim=1)


def short_conv_silu_ref(x: Stream, weight: Taps, bias: Bias | None = None) -> Stream:
    return F.silu(short_conv_ref(x, weight, bias))


class _ShiftedProducts(torch.autograd.Function):
    """Adds all shifted products to one tensor; autograd would create one for each."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        now, *earlier = _taps(weight)
        y = x * now if bias is None else torch.addcmul(bias, x, now)
        for i, tap in enumerate(earlier, 1):
            y[:, i:].addcmul_(x[:, :-i], tap)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        (x, weight), (g,) = ctx.saved_tensors, grads
        now, *earlier = _taps(weight)
        gx, gtaps = g * now, [(g * x).sum(dim=(0, 1))]
        for i, tap in enumerate(earlier, 1):
            gx[:, :-i].addcmul_(g[:, i:], tap)
            gtaps.append((g[:, i:] * x[:, :-i]).sum(dim=(0, 1)))
        return gx, torch.stack(gtaps[::-1], dim=1), g.sum(dim=(0, 1)) if ctx.has_bias else None


def _taps(weight: Tensor) -> tuple[Tensor, ...]:
    """Return the taps from x_t backwards; contiguous ones halve the time of a product."""
    return weight.t().contiguous().unbind()[::-1]
