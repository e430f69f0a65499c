"""RWKV-7's time mixing (Peng et al. 2025): a delta rule with decays and rates for each channel.

x^□ = x_t + μ_□ ∘ (x_{t−1} − x_t), a token shift of its own for each □ of r, k, v, w, a and g
r, k, v = W x^r, W x^k, W x^v;   a = sigmoid(a₀ + lora(x^a));   g = lora(x^g)
w = exp(−e^(−½) sigmoid(w₀ + lora(x^w)));   κ = k ∘ k_k, normalised;   k̃ = k ∘ (1 + (a − 1) ∘ k_a)
S_t = Diag(w_t) S_{t−1} − (κ_t ∘ a_t) (κ_tᵀ S_{t−1}) + k̃_t v_tᵀ
o_t = group_norm(S_tᵀ r_t) + (r_t · (r_k ∘ k̃_t)) v_t;   y_t = W (o_t ∘ g_t)

What is erased is read before the memory decays. The published state is the transpose of S.

Every layer has the form of the published first one: later ones mix v with the v of the first layer,
which a mixer does not see. Vectors start as in the authors' first layer; linear weights are drawn
as in the other mixers.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mecheval.models.layers import split_heads
from mecheval.models.mixer_options.rwkv import RWKV7Options
from mecheval.models.mixers import Output, Stream
from mecheval.models.mixers.recurrent import Recurrent
from mecheval.models.ops import Reads, gather_reads
from mecheval.models.ops.recurrence import (
    LogDecays,
    Outputs,
    Queries,
    ReadOutputs,
    ReadQueries,
    Writes,
    recurrence_read,
)
from mecheval.models.ops.short_conv import short_conv
from mecheval.models.site import Site

FASTEST = math.exp(-0.5)  # the largest of −log w


class RWKV7(RWKV7Options, Recurrent):
    def __post_init__(self) -> None:
        super().__post_init__()
        d_model, heads = self.d_model, self.heads
        across = torch.linspace(-0.5, 0.5, d_model)
        within = torch.linspace(-1, 1, d_model // heads).repeat(heads)
        within = within * within.abs()
        self.r_shift = self._token_shift(0.2)
        self.k_shift = self._token_shift(0.7)
        self.v_shift = self._token_shift(0.7)
        self.r_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.r_conv_out = Site("batch time d_model", "queries r of the shifted stream")
        self.k_conv_out = Site("batch time d_model", "keys k of the shifted stream")
        self.v_conv_out = Site("batch time d_model", "values v of the shifted stream")
        if self.rate:
            self.a_shift = self._token_shift(0.9)
            self.a0 = nn.Parameter(-0.19 + 0.4 * across + 0.3 * within)
            self.a_lora = lora(d_model, d_model, rank(d_model, 2.5), nn.Identity())
            self.k_a = nn.Parameter(torch.full((d_model,), 1.02))
            self.strength = Site("batch time head d_key", "a: how much is erased and written")
        if self.delta:
            self.k_k = nn.Parameter(0.71 - 0.1 * across)
        if self.decay != "none":
            w0 = -2.5 + 6 * across + 2.5 * within
            w0 = w0 if self.decay == "channel" else w0.view(heads, -1).mean(dim=1)
            self.w_shift = self._token_shift(0.9)
            self.w0 = nn.Parameter(w0)
            self.w_lora = lora(d_model, len(w0), rank(d_model, 2.5), nn.Tanh())
            self.log_decay = Site("batch time head d_decay", "log w: how much the memory keeps")
        self.add_memory_sites()
        if self.norm:
            self.g_norm = nn.GroupNorm(heads, d_model, eps=1e-5 * d_model / heads)
        if self.bonus:
            self.r_k = nn.Parameter(torch.full((heads, d_model // heads), -0.04))
        self.g_shift = self._token_shift(0.2) if self.gate else Unshifted()
        if self.gate:
            self.g_lora = lora(d_model, d_model, rank(d_model, 5.0), nn.Sigmoid())
        self.gate_out = Site("batch time d_model", "what the heads read, normalised and gated")
        self.o_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Stream) -> Stream:
        r, writes = self.queries(x), self.writes(x)
        o = self.head_out(self._recur(r, writes))
        return self._project(o, r, writes.k, writes.v, self.g_shift(x))

    def read(self, x: Stream, at: Reads) -> Output:
        r, writes = self.queries(x, at), self.writes(x)
        o = recurrence_read(r, writes, at)
        written = (gather_reads(part.flatten(start_dim=2), at) for part in (writes.k, writes.v))
        k, v = (split_heads(part, self.heads) for part in written)
        return self._project(o, r, k, v, self.g_shift.read(x, at))

    def queries(self, x: Stream, at: Reads | None = None) -> Queries | ReadQueries:
        if at is None:
            r = self.r_conv_out(self.r_proj(self.r_shift(x)))
        else:
            r = self.r_proj(self.r_shift.read(x, at))
        return split_heads(r, self.heads)

    def writes(self, x: Stream) -> Writes:
        heads = self.heads
        k = key = self.k_conv_out(self.k_proj(self.k_shift(x)))
        v = split_heads(self.v_conv_out(self.v_proj(self.v_shift(x))), heads)
        a: Tensor | None = None
        if self.rate:
            a = (self.a0 + self.a_lora(self.a_shift(x))).sigmoid()
            a = self.strength(split_heads(a, heads))
            k = key * (1 + (a.flatten(start_dim=2) - 1) * self.k_a)
        k, log_w = split_heads(k, heads), self._log_decays(x)
        if not self.delta:
            return Writes(k, v, log_w)
        erased = F.normalize(split_heads(key * self.k_k, heads), dim=-1)
        return Writes(k, v, log_w, a=erased, b=-erased if a is None else -erased * a)

    def state_size(self, time: int) -> int:
        return self.d_model * (self.d_model // self.heads + (1 if self.shift else 0))

    def _token_shift(self, power: float) -> "TokenShift | Unshifted":
        return TokenShift(self.d_model, power) if self.shift else Unshifted()

    def _log_decays(self, x: Stream) -> LogDecays | None:
        if self.decay == "none":
            return None
        fast = (self.w0 + self.w_lora(self.w_shift(x))).sigmoid()
        return self.log_decay(split_heads(-FASTEST * fast, self.heads))

    def _project(
        self, o: Outputs | ReadOutputs, r: Tensor, k: Tensor, v: Tensor, x: Stream
    ) -> Output:
        """Return y, given what the heads read, the present token's r, k̃ and v, and x^g."""
        if self.norm:
            o = self.g_norm(o.reshape(-1, self.d_model)).view(o.shape)
        if self.bonus:
            o = o + (r * self.r_k * k).sum(dim=-1, keepdim=True) * v
        y = o.flatten(start_dim=2)
        return self.o_proj(self.gate_out(y * self.g_lora(x) if self.gate else y))


class TokenShift(nn.Module):
    """x_t + μ ∘ (x_{t−1} − x_t): a short convolution whose two taps add up to 1."""

    def __init__(self, channels: int, power: float) -> None:
        super().__init__()
        self.mu = nn.Parameter(1 - (torch.arange(channels) / channels) ** power)

    def forward(self, x: Stream) -> Stream:
        return short_conv(x, torch.stack([self.mu, 1 - self.mu], dim=1))

    def read(self, x: Stream, at: Reads) -> Output:
        before = gather_reads(x, (at - 1).clamp(min=0)) * (at > 0)[..., None]
        return torch.lerp(gather_reads(x, at), before, self.mu)


class Unshifted(nn.Identity):
    """The stream itself, in place of `TokenShift`."""

    def read(self, x: Stream, at: Reads) -> Output:
        return gather_reads(x, at)


def lora(inputs: int, outputs: int, rank: int, between: nn.Module) -> nn.Sequential:
    """Return an MLP of low rank without biases."""
    down = nn.Linear(inputs, rank, bias=False)
    return nn.Sequential(down, between, nn.Linear(rank, outputs, bias=False))


def rank(d_model: int, factor: float) -> int:
    """Return the published rank, factor·√d_model in steps of 32, but no more than d_model."""
    return min(d_model, max(32, 32 * round(factor * math.sqrt(d_model) / 32)))
