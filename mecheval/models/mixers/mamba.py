"""Mamba (Gu & Dao 2024): a short convolution, then a state space model controlled by its input.

x, z = W_in u;   x ← silu(conv(x));   dt, B, C = W_x x;   dt ← softplus(W_dt dt + b)
h_t = exp(dt_t A) ∘ h_{t−1} + dt_t B_t x_t;   y_t = C_t · h_t + D ∘ x_t;   out = W_out (y ∘ silu(z))
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mecheval.models.layers import ShortConvSilu, draw_step_bias
from mecheval.models.mixer_options.paper import MambaOptions
from mecheval.models.mixers import Output, Stream
from mecheval.models.ops import Reads, gather_reads
from mecheval.models.ops.per_token import silu_gate, softplus_linear
from mecheval.models.ops.selective_scan import (
    propagate_edit,
    read_states,
    selective_read,
    selective_scan,
    selective_states,
)
from mecheval.models.site import Site

Inner = Float[Tensor, "batch time d_inner"]
Weights = Float[Tensor, "batch d_inner time source"]


class Mamba(MambaOptions, nn.Module):
    def __post_init__(self) -> None:
        super().__post_init__()
        d_model, d_state, d_conv = self.d_model, self.d_state, self.d_conv
        d_inner, dt_rank = self.expand * d_model, math.ceil(d_model / 16)
        self.dt_rank = dt_rank
        self.in_proj = nn.Linear(d_model, 2 * d_inner, bias=False)
        self.conv = ShortConvSilu(d_inner, d_conv) if d_conv else nn.SiLU()
        self.x_proj = nn.Linear(d_inner, dt_rank + 2 * d_state, bias=False)
        self.dt_proj = nn.Linear(dt_rank, d_inner)
        A = torch.arange(1, d_state + 1).float()
        self.A_log = nn.Parameter(torch.log(A).repeat(d_inner, 1))
        self.D = nn.Parameter(torch.ones(d_inner))
        self.out_proj = nn.Linear(d_inner, d_model, bias=False)
        self._init_dt()
        self.conv_out = Site("batch time d_inner", "the stream after short convolution and silu")
        about = "step sizes: how much of each token is written and how much is forgotten"
        self.dt = Site("batch time d_inner", about)
        about = "the state after each token; later tokens continue from an edited one"
        self.state = Site("batch time d_inner d_state", about, True)
        self.ssm_out = Site("batch time d_inner", "what the state space model reads out")
        about = "what is read out times the gate, before the output projection"
        self.gate_out = Site("batch time d_inner", about)

    def forward(self, x: Stream) -> Stream:
        # two products: the gradients of two halves of one would have to be copied together
        x, z = (F.linear(x, W) for W in self.in_proj.weight.chunk(2))
        x = self.conv_out(self.conv(x))
        y = self.ssm_out(self._ssm(x))
        return self.out_proj(self.gate_out(silu_gate(y, z)))

    def read(self, x: Stream, at: Reads) -> Output:
        """Return the output at some positions.

        Of a single one, only it is read out of the state, gated and projected.
        """
        if at.shape[1] > 1:
            return gather_reads(self(x), at)
        W_x, W_z = self.in_proj.weight.chunk(2)
        z = F.linear(gather_reads(x, at), W_z)
        x = self.conv(F.linear(x, W_x))
        W_written, W_C = self.x_proj.weight.tensor_split([self.dt_rank + self.d_state])
        dt, B = F.linear(x, W_written).tensor_split([self.dt_rank], dim=-1)
        C = F.linear(gather_reads(x, at), W_C)
        dt, A = self._step_sizes(dt), -self.A_log.exp()
        y = selective_read(x, dt, A, B, C, self.D, at, backend=self.backend)
        return self.out_proj(silu_gate(y, z))

    def mixing(self, x: Stream) -> tuple[Weights, Float[Tensor, "batch source d_inner 1"]]:
        """Return W, how much of each x_s is in y_t, and x; their product passes `ssm_out`.

        W_ts = Σ_n C_tn exp(A_n Σ_{s<r≤t} dt_r) dt_s B_sn, plus D where s = t.
        Every channel is a head of its own, of width 1.
        """
        x, _ = self.in_proj(x).chunk(2, dim=-1)
        x = self.conv_out(self.conv(x))
        dt, B, C = self._select(x)
        A = -self.A_log.exp()
        # given dt, B and C the scan is linear in x: the output for a 1 at s alone is column s
        columns = []
        for one in torch.eye(x.shape[1], dtype=x.dtype, device=x.device)[..., None]:
            impulse = one.expand_as(x)
            column = selective_scan(impulse, dt, A, B, C, self.D, backend=self.backend)
            columns.append(column)
        return torch.stack(columns, dim=-1).transpose(1, 2), x[..., None]

    def state_size(self, time: int) -> int:
        width = self.conv.kernel_size[0] - 1 if isinstance(self.conv, ShortConvSilu) else 0
        return self.A_log.numel() + self.out_proj.in_features * width

    def _ssm(self, x: Inner) -> Inner:
        dt, B, C = self._select(x)
        A = -self.A_log.exp()
        if self.state.used:
            states = selective_states(x, dt, A, B)
            return read_states(propagate_edit(dt, A, states, self.state(states)), x, C, self.D)
        return selective_scan(x, dt, A, B, C, self.D, backend=self.backend)

    def _select(self, x: Inner) -> tuple[Tensor, Tensor, Tensor]:
        """Return dt, B and C."""
        dt, B, C = self.x_proj(x).split([self.dt_rank, self.d_state, self.d_state], dim=-1)
        return self.dt(self._step_sizes(dt)), B, C

    def _step_sizes(self, dt: Float[Tensor, "batch time dt_rank"]) -> Inner:
        return softplus_linear(dt, self.dt_proj.weight, self.dt_proj.bias)

    @torch.no_grad()
    def _init_dt(self) -> None:
        """Draw softplus(bias) log-uniform in [0.001, 0.1], weights uniform in ±dt_rank^−½."""
        nn.init.uniform_(self.dt_proj.weight, -(self.dt_rank**-0.5), self.dt_rank**-0.5)
        self.dt_proj.bias.copy_(draw_step_bias(len(self.dt_proj.bias)))
