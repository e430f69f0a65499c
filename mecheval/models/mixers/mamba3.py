"""Mamba-3 (Lahoti et al. 2026), in its form with one input and one output (SISO).

x = W u;   B, C = rms_norm(W u) + b;   dt = softplus(W u + b);   λ = sigmoid(W u)
α = exp(−dt softplus(W u));   φ_t = φ_{t−1} + π dt_t tanh(W u);   k, q = B, C rotated by φ
S_t = α_t (S_{t−1} + (1 − λ_t) dt_t k_{t−1} x_{t−1}ᵀ) + λ_t dt_t k_t x_tᵀ
y_t = S_tᵀ q_t + D x_t;   out = W_out (y ∘ silu(W_z u))

The trapezoidal rule writes every token twice: when it comes, and once more when the next one does.
It writes k_{t−1} x_{t−1} and k_t x_t, never k_{t−1} x_t: no key is joined to the value after it, as
a short convolution would do. There is none, unless `d_conv` adds one, without silu, to x, B and C.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Complex, Float
from torch import Tensor, nn

from mecheval.models.layers import RMSNorm, ShortConv, draw_step_bias, split_heads
from mecheval.models.mixer_options.state_space import Mamba3Options
from mecheval.models.mixers import Output, Stream
from mecheval.models.mixers.state_space import StateSpace, gather_heads
from mecheval.models.ops import Reads, gather_reads
from mecheval.models.ops.recurrence import (
    Keys,
    Queries,
    ReadQueries,
    Values,
    Writes,
    recurrence_read,
)
from mecheval.models.site import Site

SLOWEST = 1e-4  # the least rate of decay
WIDE = {"mps": torch.float32}  # angles add up in float64 where the device has it

ByHead = Float[Tensor, "batch time head"]
Sizes = Float[Tensor, "batch time head 1"]
Angles = Float[Tensor, "batch time head angle"]
Turns = Complex[Tensor, "batch time head angle"]
Tokens = Float[Tensor, "batch time ..."]
Steps = Float[Tensor, "batch step ..."]


class Mamba3(Mamba3Options, StateSpace):
    norm_before_gate = True

    def __post_init__(self) -> None:
        super().__post_init__()
        d_model, heads, d_state = self.d_model, self.heads, self.d_state
        shared = self.groups * d_state
        self.x_proj = nn.Linear(d_model, self.d_inner, bias=False)
        self.B_proj = nn.Linear(d_model, shared, bias=False)
        self.C_proj = nn.Linear(d_model, shared, bias=False)
        if self.d_conv:
            self.x_conv = ShortConv(self.d_inner, self.d_conv)
            self.B_conv = ShortConv(shared, self.d_conv)
            self.C_conv = ShortConv(shared, self.d_conv)
            self.x_conv_out = Site("batch time d_inner", "values after the short convolution")
            self.B_conv_out = Site("batch time group_states", "keys after the short convolution")
            self.C_conv_out = Site("batch time group_states", "queries after the short convolution")
        self.B_norm = RMSNorm(d_state, eps=1e-5) if self.bc_norm else nn.Identity()
        self.C_norm = RMSNorm(d_state, eps=1e-5) if self.bc_norm else nn.Identity()
        if self.bias:
            self.B_bias = nn.Parameter(torch.ones(heads, d_state))
            self.C_bias = nn.Parameter(torch.ones(heads, d_state))
        self.dt_proj = nn.Linear(d_model, heads, bias=False)
        self.dt_bias = nn.Parameter(draw_step_bias(heads))
        about = "step sizes: how much of each token is written, forgotten and rotated"
        self.dt = Site("batch time head", about)
        if self.decay != "none":
            self.A_proj = nn.Linear(d_model, heads, bias=False)
            self.log_decay = Site("batch time head", "log α: how much the memory keeps")
        if self.trapezoid:
            self.trap_proj = nn.Linear(d_model, heads, bias=False)
            about = "λ: the share of the present token in what is written; the rest is the last's"
            self.share = Site("batch time head", about)
        if self.angles:
            self.angle_proj = nn.Linear(d_model, self.angles, bias=False)
            about = "φ: by how much keys and queries are rotated"
            self.angle = Site("batch time head angle", about)
        self.value = Site("batch time head d_value", "values")
        self.key = Site("batch time head d_key", "keys, normalised and rotated")
        self.query = Site("batch time head d_key", "queries, normalised and rotated")
        self.add_output(norm_groups=heads if self.norm else 0)

    def forward(self, x: Stream) -> Stream:
        if self.state.used or not self.trapezoid:
            return super().forward(x)
        q, k, v, log_w, before, now = self._tokens(x)
        o = self._recur(q, write_late(k, v, log_w, before, now)) + read_own(q, k, v, now)
        return self.output(self.head_out(self._with_skip(o, v)), x)

    def read(self, x: Stream, at: Reads) -> Output:
        if not self.trapezoid:
            return super().read(x, at)
        q, k, v, log_w, before, now = self._tokens(x, at)
        o = recurrence_read(q, write_late(k, v, log_w, before, now), at)
        k, v, now = (gather_heads(part, at) for part in (k, v, now))
        return self.output(self._with_skip(o + read_own(q, k, v, now), v), gather_reads(x, at))

    def reads_and_writes(
        self, x: Stream, at: Reads | None = None
    ) -> tuple[Queries | ReadQueries, Writes]:
        q, k, v, log_w, before, now = self._tokens(x, at)
        if not self.trapezoid:
            return q, Writes(now * k, v, log_w)
        if log_w is not None:  # the memory decays after the first of a token's two steps
            log_w = in_turn(torch.zeros_like(log_w), log_w)
        k = in_turn(before * previous(k), now * k)
        return q, Writes(k, in_turn(previous(v), v), log_w, steps=2)

    def _tokens(
        self, x: Stream, at: Reads | None = None
    ) -> tuple[Queries | ReadQueries, Keys, Values, Sizes | None, Sizes, Sizes]:
        """Return q, k, v, log α and how much of the last token and of the present is written."""
        v, k, q = self.value(self._values(x)), self._keys(x), self._queries(x, at)
        dt = self.dt(F.softplus(self.dt_proj(x) + self.dt_bias))
        if self.angles:
            angle = self.angle(self._angles(x, dt))
            turn = unit(angle)
            k = rotate(k, turn)
            q = rotate(q, turn if at is None else unit(gather_heads(angle, at)))
        k, q = self.key(k), self.query(q)
        log_w = self._log_decays(x, dt)
        share = self.share(self.trap_proj(x).sigmoid()) if self.trapezoid else torch.ones_like(dt)
        return q, k, v, log_w, ((1 - share) * dt)[..., None], (share * dt)[..., None]

    def state_size(self, time: int) -> int:
        memory, last_token = self.d_inner * self.d_state, self.d_inner + self.heads * self.d_state
        size = memory + (last_token if self.trapezoid else 0) + self.heads * self.angles
        return size + self.conv_state_size()

    def _values(self, x: Stream) -> Values:
        v = self.x_proj(x)
        return split_heads(self.x_conv_out(self.x_conv(v)) if self.d_conv else v, self.heads)

    def _keys(self, x: Stream) -> Keys:
        """Return B by head, before it is rotated."""
        B = self.B_proj(x)
        B = split_heads(self.B_conv_out(self.B_conv(B)) if self.d_conv else B, self.groups)
        k = self.by_head(self.B_norm(B))
        return k + self.B_bias if self.bias else k

    def _queries(self, x: Stream, at: Reads | None) -> Queries | ReadQueries:
        """Return C by head, before it is rotated, at every position or at some."""
        if at is None:
            C = self.C_proj(x)
            C = self.C_conv_out(self.C_conv(C)) if self.d_conv else C
        elif self.d_conv:
            C = self.C_conv.read(x, at, self.C_proj)
        else:
            C = self.C_proj(gather_reads(x, at))
        q = self.by_head(self.C_norm(split_heads(C, self.groups)))
        return q + self.C_bias if self.bias else q

    def _log_decays(self, x: Stream, dt: ByHead) -> Sizes | None:
        if self.decay == "none":
            return None
        A = self.A_proj(x)
        A = F.softplus(A) if self.decay == "softplus" else heavy_tail(A)
        return self.log_decay(-A.clamp(min=SLOWEST) * dt)[..., None]

    def _angles(self, x: Stream, dt: ByHead) -> Angles:
        """Return φ up to a multiple of 2π; the sum of many would be too coarse in float32."""
        turns = dt[..., None] * (math.pi * self.angle_proj(x).tanh())[:, :, None, :]
        total = turns.cumsum(dim=1, dtype=WIDE.get(x.device.type, torch.float64))
        return total.remainder(2 * math.pi).to(x.dtype)


def write_late(k: Keys, v: Values, log_w: Sizes | None, before: Sizes, now: Sizes) -> Writes:
    """Write every token once, when the next one comes: U_t = S_t − λ_t dt_t k_t x_tᵀ.

    S_{t−1} differs from U_{t−1} by what token t − 1 wrote of itself, at the place where it is
    written again, so U_t = α_t (U_{t−1} + (λ_{t−1} dt_{t−1} + (1 − λ_t) dt_t) k_{t−1} x_{t−1}ᵀ).
    """
    size = previous(now) + before
    return Writes((size if log_w is None else log_w.exp() * size) * previous(k), previous(v), log_w)


def read_own(
    q: Queries | ReadQueries, k: Keys, v: Values, now: Sizes
) -> Float[Tensor, "batch place head d_value"]:
    """Return what the token itself adds to what is read, λ dt (k · q) x: U does not hold it yet."""
    return now * (k * q).sum(dim=-1, keepdim=True) * v


def unit(angle: Angles) -> Turns:
    """Return exp(iφ)."""
    return torch.complex(angle.cos(), angle.sin())


def rotate(x: Keys, turn: Turns) -> Keys:
    """Multiply pairs of neighbouring channels, as complex numbers; channels beyond stay."""
    pairs, rest = x.tensor_split([2 * turn.shape[-1]], dim=-1)
    numbers = torch.view_as_complex(pairs.contiguous().view(*turn.shape, 2))
    rotated = torch.view_as_real(numbers * turn).flatten(start_dim=-2)
    return torch.cat([rotated, rest], dim=-1)


def heavy_tail(x: ByHead) -> ByHead:
    """Return 1 + x, or 1/(1 − x) for negative x."""
    return torch.where(x < 0, 1 / (1 - x.clamp(max=0)), 1 + x)


def previous(x: Tokens) -> Tokens:
    """Return what the token before has; the first has nothing before it."""
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)


def in_turn(first: Tokens, second: Tokens) -> Steps:
    """Return the two steps of every token, one after the other."""
    return torch.stack([first, second], dim=2).flatten(1, 2)
