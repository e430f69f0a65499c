"""Mamba-2 (Dao & Gu 2024): a state space model whose heads decay as a whole.

x, B, C = silu(conv(W u));   dt = softplus(W u + b);   α = exp(−exp(A) dt), one for each head
S_t = α_t S_{t−1} + dt_t B_t x_tᵀ;   y_t = S_tᵀ C_t + D x_t;   out = W_out rms_norm(y ∘ silu(W_z u))

It is linear attention with values x, keys B and queries C on a memory that decays. The heads of a
group share B and C.
"""

import torch
import torch.nn.functional as F
from torch import nn

from mecheval.models.layers import conv_silu, draw_step_bias, split_heads
from mecheval.models.mixer_options.state_space import Mamba2Options
from mecheval.models.mixers import Stream
from mecheval.models.mixers.state_space import StateSpace
from mecheval.models.ops import Reads
from mecheval.models.ops.recurrence import Queries, ReadQueries, Writes
from mecheval.models.site import Site


class Mamba2(Mamba2Options, StateSpace):
    norm_before_gate = False

    def __post_init__(self) -> None:
        super().__post_init__()
        d_model, d_inner, shared = self.d_model, self.d_inner, self.groups * self.d_state
        self.x_proj = nn.Linear(d_model, d_inner, bias=False)
        self.B_proj = nn.Linear(d_model, shared, bias=False)
        self.C_proj = nn.Linear(d_model, shared, bias=False)
        self.dt_proj = nn.Linear(d_model, self.heads, bias=False)
        self.x_conv = conv_silu(d_inner, self.d_conv, bias=True)
        self.B_conv = conv_silu(shared, self.d_conv, bias=True)
        self.C_conv = conv_silu(shared, self.d_conv, bias=True)
        self.dt_bias = nn.Parameter(draw_step_bias(self.heads))
        self.x_conv_out = Site("batch time d_inner", "values after convolution and silu")
        self.B_conv_out = Site("batch time group d_state", "keys after convolution and silu")
        self.C_conv_out = Site("batch time group d_state", "queries after convolution and silu")
        about = "step sizes: how much of each token is written and how much is forgotten"
        self.dt = Site("batch time head", about)
        if self.decay:
            self.A_log = nn.Parameter(torch.empty(self.heads).uniform_(1, 16).log())
            self.log_decay = Site("batch time head", "log α: how much the memory keeps")
        self.add_output(norm_groups=self.groups if self.norm else 0)

    def reads_and_writes(
        self, x: Stream, at: Reads | None = None
    ) -> tuple[Queries | ReadQueries, Writes]:
        v = self.x_conv_out(self.x_conv(self.x_proj(x)))
        B = self.B_conv_out(split_heads(self.B_conv(self.B_proj(x)), self.groups))
        if at is None:
            C = self.C_conv_out(split_heads(self.C_conv(self.C_proj(x)), self.groups))
        else:
            C = split_heads(self.C_conv.read(x, at, self.C_proj), self.groups)
        dt = self.dt(F.softplus(self.dt_proj(x) + self.dt_bias))
        log_w = self.log_decay(-self.A_log.exp() * dt)[..., None] if self.decay else None
        k = dt[..., None] * self.by_head(B)
        return self.by_head(C), Writes(k, split_heads(v, self.heads), log_w)

    def state_size(self, time: int) -> int:
        return self.d_inner * self.d_state + self.conv_state_size()
