"""H3 (Fu et al. 2023): a shift SSM on k, times v, a diagonal SSM, times q.

k ← shift_ssm(k) + D_k ∘ k;   kv = k ⊗ v within heads;   y = q · (diagonal_ssm(kv) + D ∘ kv)
"""

import math
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from mecheval.errors import InvalidInput
from mecheval.models.ops.filters import diagonal_filter, shift_filter
from mecheval.models.ops.long_conv import long_conv
from mecheval.models.site import Site

Stream = Float[Tensor, "batch time d_model"]


class H3(nn.Module):
    """Two state space models with multiplications between them."""

    def __init__(
        self,
        d_model: int,
        max_len: int,
        *,
        d_state: Annotated[int, Field(ge=2, le=2**16, multiple_of=2, description="state of each SSM")] = 1024,
        head_dim: Annotated[int, Field(ge=1, description="channels in a head")] = 2,
    ) -> None:
        super().__init__()
        if d_model % head_dim:
            raise InvalidInput(f"head_dim={head_dim} must divide d_model={d_model}")
        self.head_dim = head_dim
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
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        k = self.shift_out(long_conv(k, self.shift(x.shape[1])) + self.D_k * k)
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)) for part in (q, k, v))
        kv = self.kv(k[..., :, None] * v[..., None, :])
        y = self.ssm_out(self._remembered(kv))
        y = (q[..., :, None] * y).sum(dim=-2)  # batch time head d_value
        return self.output_linear(
            y.transpose(-1, -2).flatten(start_dim=-2)
        )  # the published layout: d_value before head

    def state_size(self, time: int) -> int:
        """How many numbers must be kept to go on after so many tokens."""
        return self.shift.B.numel() + 2 * self.diagonal.A_imag.numel() * self.head_dim**2

    def _remembered(self, kv: Float[Tensor, "batch time head d_key d_value"]) -> Tensor:
        """Every product of a head goes through the same SSM."""
        k = self.diagonal(kv.shape[1]).repeat_interleave(self.head_dim**2, dim=1)
        return long_conv(kv.flatten(start_dim=2), k).view_as(kv) + self.D[:, None, None] * kv


class ShiftSSM(nn.Module):
    """A state that is a window of the past; starts by writing into its first place."""

    def __init__(self, channels: int, d_state: int) -> None:
        super().__init__()
        self.B = nn.Parameter(torch.eye(1, d_state).repeat(channels, 1))
        self.C = nn.Parameter(torch.empty(channels, d_state).uniform_(-(d_state**-0.5), d_state**-0.5))

    def forward(self, time: int) -> Float[Tensor, "time channel"]:
        return shift_filter(self.B, self.C, time)


class DiagonalSSM(nn.Module):
    """S4D-Lin: A = −½ + iπn in conjugate pairs, discretised bilinearly."""

    def __init__(self, channels: int, d_state: int) -> None:
        super().__init__()
        pairs = d_state // 2
        self.log_dt = nn.Parameter(torch.empty(channels).uniform_(math.log(0.001), math.log(0.1)))
        self.log_A_real = nn.Parameter(torch.full((channels, pairs), math.log(0.5)))
        self.A_imag = nn.Parameter((math.pi * torch.arange(pairs)).repeat(channels, 1))
        self.B = nn.Parameter(torch.tensor([1.0, 0.0]).repeat(channels, pairs, 1))
        self.C = nn.Parameter(torch.view_as_real(torch.randn(channels, pairs, dtype=torch.cfloat)).clone())

    def forward(self, time: int) -> Float[Tensor, "time channel"]:
        A = torch.complex(-self.log_A_real.exp(), self.A_imag)
        return diagonal_filter(
            self.log_dt.exp(), A, torch.view_as_complex(self.B) * torch.view_as_complex(self.C), time
        )
