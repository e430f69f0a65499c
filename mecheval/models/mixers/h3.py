"""H3 (Fu et al. 2023): a shift SSM on k, times v, a diagonal SSM, times q.

k ← shift_ssm(k) + D_k ∘ k;   kv = k ⊗ v within heads;   y = q · (diagonal_ssm(kv) + D ∘ kv)
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mecheval.models.mixer_options.paper import H3Options
from mecheval.models.mixers import Output, Stream
from mecheval.models.ops import Reads, gather_reads
from mecheval.models.ops.filters import diagonal_filter, shift_filter
from mecheval.models.ops.long_conv import long_conv, long_read
from mecheval.models.site import Site

Products = Float[Tensor, "batch time head d_key d_value"]
Readings = Float[Tensor, "batch reads head d_key d_value"]
HeadsLast = Float[Tensor, "batch time d_key d_value head"]


class H3(H3Options, nn.Module):
    def __post_init__(self) -> None:
        super().__post_init__()
        d_model, d_state, head_dim = self.d_model, self.d_state, self.head_dim
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.shift = ShiftSSM(d_model, d_state)
        self.D_k = nn.Parameter(torch.randn(d_model))
        self.diagonal = DiagonalSSM(d_model // head_dim, d_state)
        self.D = nn.Parameter(torch.randn(d_model // head_dim))
        self.output_linear = nn.Linear(d_model, d_model)
        self.shift_out = Site("batch time d_model", "keys after the shift SSM")
        self.kv = Site("batch time head d_key d_value", "products of shifted keys and values")
        self.ssm_out = Site("batch time head d_key d_value", "products after the diagonal SSM")

    def forward(self, x: Stream) -> Stream:
        kv = self.kv(self._multiply(x))
        y = self.ssm_out(self._filter(kv))
        return self._answer(self.q_proj(x), y)

    def read(self, x: Stream, at: Reads) -> Output:
        """Return the output at some positions: the diagonal SSM is read only there."""
        q = self.q_proj(gather_reads(x, at))
        return self._answer(q, self._filter(self._multiply(x), at))

    def state_size(self, time: int) -> int:
        return self.shift.B.numel() + 2 * self.diagonal.A_imag.numel() * self.head_dim**2

    def _multiply(self, x: Stream) -> Products:
        """Return the products of shifted keys and values within each head."""
        k, v = self.k_proj(x), self.v_proj(x)
        k = self.shift_out(long_conv(k, self.shift(x.shape[1])) + self.D_k * k)
        k, v = self._split(k), self._split(v)
        return _heads_first(k[..., :, None, :] * v[..., None, :, :])

    def _filter(self, kv: Products, at: Reads | None = None) -> Readings:
        """Run every product of a head through the head's diagonal SSM."""
        products = _heads_last(kv).flatten(start_dim=2)
        k = self.diagonal(kv.shape[1]).repeat(1, self.head_dim**2)
        y = long_conv(products, k) if at is None else long_read(products, k, at)
        here = products if at is None else gather_reads(products, at)
        shape = *y.shape[:2], self.head_dim, self.head_dim, -1
        return _heads_first(y.view(shape) + self.D * here.view(shape))

    def _answer(self, q: Stream, y: Products) -> Stream:
        y = (self._split(q)[..., :, None, :] * _heads_last(y)).sum(dim=-3)
        return self.output_linear(y.flatten(start_dim=-2))  # as published, d_value before head

    def _split(self, part: Stream) -> Float[Tensor, "batch time channel head"]:
        """Put heads last in memory: products of a few channels would not fill the vector unit."""
        return part.view(*part.shape[:2], -1, self.head_dim).transpose(-1, -2).contiguous()


def _heads_first(x: HeadsLast) -> Products:
    return x.permute(0, 1, 4, 2, 3)


def _heads_last(x: Products) -> HeadsLast:
    return x.permute(0, 1, 3, 4, 2)


class ShiftSSM(nn.Module):
    """A state that is a window of the past; B initially writes into its first place."""

    def __init__(self, channels: int, d_state: int) -> None:
        super().__init__()
        self.B = nn.Parameter(torch.eye(1, d_state).repeat(channels, 1))
        bound = d_state**-0.5
        self.C = nn.Parameter(torch.empty(channels, d_state).uniform_(-bound, bound))

    def forward(self, time: int) -> Float[Tensor, "time channel"]:
        return shift_filter(self.B, self.C, time)


class DiagonalSSM(nn.Module):
    """S4D-Lin: A = −½ + iπn in conjugate pairs, discretised bilinearly."""

    def __init__(self, channels: int, d_state: int) -> None:
        super().__init__()
        pairs = d_state // 2
        log_dt = torch.empty(channels).uniform_(math.log(0.001), math.log(0.1))
        self.log_dt = nn.Parameter(log_dt)
        self.log_A_real = nn.Parameter(torch.full((channels, pairs), math.log(0.5)))
        self.A_imag = nn.Parameter((math.pi * torch.arange(pairs)).repeat(channels, 1))
        self.B = nn.Parameter(torch.tensor([1.0, 0.0]).repeat(channels, pairs, 1))
        C = torch.randn(channels, pairs, dtype=torch.cfloat)
        self.C = nn.Parameter(torch.view_as_real(C).clone())

    def forward(self, time: int) -> Float[Tensor, "time channel"]:
        A = torch.complex(-self.log_A_real.exp(), self.A_imag)
        BC = torch.view_as_complex(self.B) * torch.view_as_complex(self.C)
        return diagonal_filter(self.log_dt.exp(), A, BC, time)
