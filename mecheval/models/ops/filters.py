"""Long filters computed from positions (BaseConv, Hyena) or from state space models (H3)."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Complex, Float
from torch import Tensor

from mecheval.models.ops.compiled import apply_kernels, not_compiled, once_differentiable
from mecheval.models.ops.long_conv import fft_size

Filter = Float[Tensor, "time channel"]
Window = Float[Tensor, "channel d_state"]
Steps = Float[Tensor, " channel"]
Pairs = Complex[Tensor, "channel pairs"]
Powers = Complex[Tensor, "channel power pairs"]

# lags of a correlation; measured forward and backward on one CPU thread, 64 and 256 channels
DIRECT_UP_TO = 80


def position_features(max_len: int) -> Float[Tensor, "max_len 3"]:
    """Return (t, cos ωi, −sin ωi) for i < max_len, t from 0 to 1 and ω = 1e-4 · 2π / max_len."""
    i = torch.arange(max_len, dtype=torch.float64)
    angle = 1e-4 * 2 * math.pi * i / max_len
    return torch.stack([i / max(max_len - 1, 1), angle.cos(), -angle.sin()], dim=-1).float()


def decay_rates(channels: int) -> Float[Tensor, " channel"]:
    """Return Hyena's |δ|: the filters fall to 1 % within 0.3 to 1.5 times max_len."""
    return torch.linspace(math.log(0.01) / 1.5, math.log(0.01) / 0.3, channels).abs()


def shift_filter(B: Window, C: Window, time: int) -> Filter:
    """Return the response of a shift SSM, k_l = Σ_n B_n C_{n+l}.

    Its state is a window of the past, read by C.
    """
    lags = min(time, B.shape[1])
    if lags > DIRECT_UP_TO or not_compiled(B, C):
        k = _SpectralCorrelation.apply(B, C, lags)  # type: ignore[no-untyped-call]
    else:
        from mecheval.models.ops.kernels.filters import correlate, correlate_backward

        kernels = correlate, correlate_backward
        k = apply_kernels(kernels, (len(B), lags), 2, B.contiguous(), C.contiguous())
    return F.pad(k, (0, time - lags)).t()


def shift_filter_ref(B: Window, C: Window, time: int) -> Filter:
    """Compute the recurrence: s ← shift(s) + B u, y = ⟨C, s⟩, for an impulse u."""
    state, steps = torch.zeros_like(B), []
    for t in range(time):
        state = torch.cat([torch.zeros_like(state[:, :1]), state[:, :-1]], dim=1)
        state = state + (B if t == 0 else 0)
        steps.append((C * state).sum(dim=1))
    return torch.stack(steps)


def diagonal_filter(dt: Steps, A: Pairs, BC: Pairs, time: int) -> Filter:
    """Return the response of a diagonal SSM in conjugate pairs, discretised bilinearly (S4D):

    k_l = 2 Re Σ_n BC · dt / (1 − dtA/2) · ((1 + dtA/2) / (1 − dtA/2))^l
    """
    # double also for the poles: the l-th power of a rounded one is wrong by l roundings
    step = dt[:, None].double()
    inverse = 1 / (1 - step * A / 2)
    weight, pole = BC * (2 * step * inverse), 2 * inverse - 1
    if not_compiled(dt):
        return _PowerSums.apply(weight.to(BC.dtype), pole, time).t()  # type: ignore[no-untyped-call]
    from mecheval.models.ops.kernels.filters import power_sums, power_sums_backward

    kernels = power_sums, power_sums_backward
    k = apply_kernels(kernels, (len(dt), time), 2, weight.contiguous(), pole.contiguous())
    return k.t().to(dt.dtype)


def diagonal_filter_ref(dt: Steps, A: Pairs, BC: Pairs, time: int) -> Filter:
    """Compute the recurrence in double: s ← Ā s + B̄ u, y = 2 Re ⟨C, s⟩, for an impulse u."""
    half = dt[:, None].double() * A / 2
    A_bar, state, steps = (1 + half) / (1 - half), torch.zeros_like(half), []
    for t in range(time):
        state = A_bar * state + (BC * dt[:, None] / (1 - half) if t == 0 else 0)
        steps.append(2 * state.sum(dim=1).real)
    return torch.stack(steps).to(dt.dtype)


class _SpectralCorrelation(torch.autograd.Function):
    """Computes Σ_n B_n C_{n+l} for l < lags by FFT; nothing wraps round into these lags."""

    @staticmethod
    def forward(ctx: Any, B: Tensor, C: Tensor, lags: int) -> Tensor:
        ctx.d_state, ctx.size = B.shape[1], fft_size(B.shape[1] + lags - 1)
        fB, fC = torch.fft.rfft(B, n=ctx.size), torch.fft.rfft(C, n=ctx.size)
        ctx.save_for_backward(fB, fC)
        return torch.fft.irfft(fB.conj() * fC, n=ctx.size)[:, :lags]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (fB, fC), G = ctx.saved_tensors, torch.fft.rfft(grads[0], n=ctx.size)
        gB, gC = (torch.fft.irfft(f, n=ctx.size)[:, : ctx.d_state] for f in (G.conj() * fC, G * fB))
        return gB, gC, None


class _PowerSums(torch.autograd.Function):
    """Computes k_l = Re Σ_n w_n r_n^l for l < time without a kernel, in the precision of w.

    It takes about 2√time powers of each r. With l = a·2^h + b, k is the product of two matrices: of
    w r^(a·2^h), and of r^b. Derivatives are those of a complex function; torch expects their
    conjugates, taken at the end.
    """

    @staticmethod
    def forward(ctx: Any, w: Tensor, r: Tensor, time: int) -> Tensor:
        doublings = round(math.log2(time) / 2)
        stride = r
        for _ in range(doublings):
            stride = stride * stride
        r, stride = r.to(w.dtype), stride.to(w.dtype)
        near = _powers(torch.ones_like(r), r, 2**doublings)
        far = _powers(w, stride, -(-time // 2**doublings))
        ctx.save_for_backward(near, far, r, stride)
        return (_parts(far) @ _parts(near.conj()).mT).flatten(start_dim=1)[:, :time]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (near, far, r, stride), (g,) = ctx.saved_tensors, grads
        rows, columns = far.shape[1], near.shape[1]
        g = F.pad(g, (0, rows * columns - g.shape[1])).view(-1, rows, columns)
        dw, dstride = _powers_backward(far, stride, _complex(g @ _parts(near)))
        _, dr = _powers_backward(near, r, _complex(g.mT @ _parts(far)))
        return dw.conj(), (dr + dstride * (near[:, -1] * columns)).conj(), None


def _powers(first: Tensor, r: Tensor, count: int) -> Powers:
    """Return first, first·r, first·r² …"""
    powers = first.new_empty(first.shape[0], count, first.shape[1])
    powers[:, 0] = first
    for i in range(1, count):
        torch.mul(powers[:, i - 1], r, out=powers[:, i])
    return powers


def _powers_backward(powers: Powers, r: Tensor, d: Powers) -> tuple[Tensor, Tensor]:
    """Return the derivatives of first and r, by Horner's rule; overwrites d."""
    for i in range(d.shape[1] - 1, 0, -1):
        d[:, i - 1].addcmul_(d[:, i], r)
    return d[:, 0], (powers[:, :-1] * d[:, 1:]).sum(dim=1)


def _parts(x: Powers) -> Float[Tensor, "channel power parts"]:
    """Interleave real and imaginary parts: Re Σ x y is the product of those of x and of ȳ."""
    return torch.view_as_real(x.resolve_conj()).flatten(start_dim=-2)


def _complex(x: Float[Tensor, "channel power parts"]) -> Powers:
    return torch.view_as_complex(x.view(*x.shape[:-1], -1, 2))
