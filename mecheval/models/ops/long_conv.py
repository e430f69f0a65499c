"""Causal convolution with a filter as long as the input: y_t = Σ_{s≤t} k_{t−s} x_s.

Short inputs use a Toeplitz matrix for each channel, others an FFT of twice the length, so that
nothing wraps. Both have their own gradients: autograd would scatter into the matrix element by
element, and differentiate a real FFT by a complex one of the full size.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mecheval.models.ops import Reads, Stream, gather_reads
from mecheval.models.ops.compiled import once_differentiable

Filter = Float[Tensor, "time channel"]

# tokens; measured forward and backward on one CPU thread, batch 32, 64 and 256 channels
TOEPLITZ_UP_TO = 80


def long_conv(x: Stream, k: Filter) -> Stream:
    return toeplitz_conv(x, k) if x.shape[1] <= TOEPLITZ_UP_TO else fft_conv(x, k)


def long_read(x: Stream, k: Filter, at: Reads) -> Float[Tensor, "batch reads channel"]:
    """Return what `long_conv` returns at some positions; a single one is one sum over the past."""
    if at.shape[1] > 1:
        return gather_reads(long_conv(x, k), at)
    return _Read.apply(x, k, at)  # type: ignore[no-untyped-call]


def toeplitz_conv(x: Stream, k: Filter) -> Stream:
    return _Toeplitz.apply(x, k)  # type: ignore[no-untyped-call]


def fft_conv(x: Stream, k: Filter) -> Stream:
    return _Spectral.apply(x, k)  # type: ignore[no-untyped-call]


def long_conv_ref(x: Stream, k: Filter) -> Stream:
    steps = [sum(k[t - s] * x[:, s] for s in range(t + 1)) for t in range(x.shape[1])]
    return torch.stack(steps, dim=1)  # type: ignore[arg-type]


def fft_size(least: int) -> int:
    """Return a size without slow prime factors, at most an eighth larger.

    It is a power of two times a number up to 16.
    """
    step = 2 ** max(least.bit_length() - 4, 0)
    return -(-least // step) * step


class _Toeplitz(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, k: Tensor) -> Tensor:
        matrix, x = _toeplitz(k), _channels_first(x)
        ctx.save_for_backward(matrix, x)
        return _channels_last(x @ matrix.mT)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        (matrix, x), g = ctx.saved_tensors, _channels_first(grads[0])
        return _channels_last(g @ matrix), _diagonal_sums(g.mT @ x)


class _Spectral(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, k: Tensor) -> Tensor:
        ctx.time, ctx.size = len(k), fft_size(2 * len(k) - 1)
        X, K = torch.fft.rfft(x.mT, n=ctx.size), torch.fft.rfft(k.t(), n=ctx.size)
        ctx.save_for_backward(X, K)
        return torch.fft.irfft(X * K, n=ctx.size)[..., : ctx.time].mT.contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        (X, K), G = ctx.saved_tensors, torch.fft.rfft(grads[0].mT, n=ctx.size)
        gx = torch.fft.irfft(G * K.conj(), n=ctx.size)[..., : ctx.time]
        gk = torch.fft.irfft((G * X.conj()).sum(dim=0), n=ctx.size)[..., : ctx.time]
        return gx.mT.contiguous(), gk.t()


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, k: Tensor, at: Tensor) -> Tensor:
        ago = at - torch.arange(x.shape[1], device=x.device)
        rows = torch.arange(len(x), device=x.device)[:, None]
        earlier = _zero_outside(x[rows, ago.clamp(min=0)], ago)
        ctx.save_for_backward(earlier, k, ago)
        return (earlier * k).sum(dim=1, keepdim=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (earlier, k, ago), g = ctx.saved_tensors, grads[0]
        return _zero_outside(k[ago.clamp(min=0)], ago).mul_(g), (earlier * g).sum(dim=0), None


def _zero_outside(x: Stream, ago: Int[Tensor, "batch time"]) -> Stream:
    """Zero, in place, what is before the first token or after the one that is read."""
    return x.mul_((ago >= 0)[..., None])


def _toeplitz(k: Filter) -> Float[Tensor, "channel time source"]:
    """Build the matrices whose rows, from right to left, slide over (0 … 0, k_0 … k_T)."""
    time, channels = k.shape
    padded = F.pad(k.t(), (time - 1, 0))
    return padded.as_strided((channels, time, time), (padded.stride(0), 1, 1)).flip(-1)


def _diagonal_sums(matrix: Float[Tensor, "channel time source"]) -> Filter:
    """Sum the diagonal and those below it; overwrites the matrix.

    In rows longer by one, the same numbers have these diagonals as columns.
    """
    time = matrix.shape[-1]
    padded = F.pad(matrix.tril_().flatten(start_dim=1), (0, time))
    sums = padded.view(-1, time, time + 1).sum(dim=1)
    return torch.cat([sums[:, :1], sums[:, 2:].flip(1)], dim=1).t()


def _channels_first(x: Stream) -> Float[Tensor, "channel batch time"]:
    """Transpose two dimensions, which torch does in blocks; three take several times as long."""
    return x.reshape(-1, x.shape[2]).t().contiguous().view(x.shape[2], *x.shape[:2])


def _channels_last(x: Float[Tensor, "channel batch time"]) -> Stream:
    return x.view(x.shape[0], -1).t().contiguous().view(*x.shape[1:], x.shape[0])
