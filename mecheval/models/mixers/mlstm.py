"""mLSTM (xLSTM, Beck et al. 2024): a memory of keys and values behind exponential gates.

q, k, v = W x;   i = exp(cap(W x + b)),  f = σ(cap(W x + b)),  cap(z) = 15 tanh(z / 15)
C_t = f_t C_{t−1} + i_t k_t v_tᵀ,   n_t = f_t n_{t−1} + i_t k_t
h_t = C_tᵀ q_t / max(|n_tᵀ q_t|, 1),   q / √d_key
out = W (norm(h_t) ∘ σ(W x))

i and f are one number for each head. It is the linear recurrence: n is a column of the memory
whose value is always 1. The block is that of xLSTM-7B (Beck et al. 2025). With `d_conv`, q and k
come from silu(conv(x)), as in the first xLSTM; `input_gate=sigmoid,normaliser=false` is mLSTMsig.

The published code divides C and n by exp(m_t), the largest weight in them, because exponential
gates could overflow. It cancels in h. Capped gates cannot overflow, so here the memory is C itself:
a state that is carried over to another document needs no m_t beside it.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mecheval.models.layers import ShortConvSilu, split_heads
from mecheval.models.mixer_options.gated import MLSTMOptions
from mecheval.models.mixers import Stream
from mecheval.models.mixers.recurrent import Recurrent
from mecheval.models.ops import Reads, gather_reads
from mecheval.models.ops.recurrence import Outputs, Queries, ReadOutputs, ReadQueries, Writes
from mecheval.models.site import Site

Gates = Float[Tensor, "batch time head"]


class MultiHeadNorm(nn.Module):
    """LayerNorm of each head by itself, with a weight for every channel and no bias."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, h: Outputs | ReadOutputs) -> Stream:
        return F.layer_norm(h, h.shape[-1:], eps=1e-6).flatten(start_dim=-2) * self.weight


class MLSTM(MLSTMOptions, Recurrent):
    def __post_init__(self) -> None:
        super().__post_init__()
        d_model, heads, d_conv = self.d_model, self.heads, self.d_conv
        self.conv = ShortConvSilu(d_model, d_conv) if d_conv else None
        if d_conv:
            self.conv_out = Site("batch time d_model", "the stream after convolution and silu")
        self.q_proj = nn.Linear(d_model, self.d_key, bias=False)
        self.k_proj = nn.Linear(d_model, self.d_key, bias=False)
        self.v_proj = nn.Linear(d_model, self.d_value, bias=False)
        self.query = Site("batch time head d_key", "queries")
        self.key = Site("batch time head d_key", "keys")
        self.value = Site("batch time head d_head", "values")
        # the biases are no part of the layers, because the model begins with layers without bias
        if self.input_gate != "none":
            self.i_proj = nn.Linear(d_model, heads, bias=False)
            self.i_bias = nn.Parameter(torch.full((heads,), self.input_bias))
            self.log_input = Site("batch time head", "log i: how much of each token is written")
        if self.decay == "head":
            self.f_proj = nn.Linear(d_model, heads, bias=False)
        if self.decay != "none":
            self.f_bias = nn.Parameter(torch.linspace(3, 6, heads))
            self.log_decay = Site("batch time head", "log f: how much the memory keeps")
        self.add_memory_sites()
        if self.norm:
            self.o_norm = MultiHeadNorm(self.d_value)
        if self.gate:
            self.g_proj = nn.Linear(d_model, self.d_value, bias=False)
        self.gate_out = Site("batch time value_width", "what the heads read, normalised and gated")
        self.out_proj = nn.Linear(self.d_value, d_model, bias=False)

    def forward(self, x: Stream) -> Stream:
        source = self._convolve(x)  # once, for queries and keys
        memory = self._recur(self._queries(source), self._writes(source, x))
        return self.output(self.head_out(memory), x)

    def queries(self, x: Stream, at: Reads | None = None) -> Queries | ReadQueries:
        if at is None:
            return self._queries(self._convolve(x))
        return self._queries(gather_reads(x, at) if self.conv is None else self.conv.read(x, at))

    def writes(self, x: Stream) -> Writes:
        return self._writes(self._convolve(x), x)

    def output(self, o: Outputs | ReadOutputs, x: Stream) -> Stream:
        if self.normaliser:
            o = o[..., :-1] / o[..., -1:].abs().clamp(min=1)
        y = self.o_norm(o) if self.norm else o.flatten(start_dim=-2)
        return self.out_proj(self.gate_out(self.g_proj(x).sigmoid() * y if self.gate else y))

    def state_size(self, time: int) -> int:
        columns = self.d_value + (self.heads if self.normaliser else 0)
        return self.d_key // self.heads * columns + self.conv_state_size()

    def _convolve(self, x: Stream) -> Stream:
        return x if self.conv is None else self.conv_out(self.conv(x))

    def _queries(self, source: Stream) -> Queries | ReadQueries:
        q = self.query(split_heads(self.q_proj(source), self.heads))
        return q * q.shape[-1] ** -0.5

    def _writes(self, source: Stream, x: Stream) -> Writes:
        k = self.key(split_heads(self.k_proj(source), self.heads))
        v = self.value(split_heads(self.v_proj(x), self.heads))
        if self.normaliser:
            v = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)
        if self.input_gate != "none":
            k = self._log_input(x).exp()[..., None] * k
        return Writes(k, v, self._log_decays(x))

    def _log_input(self, x: Stream) -> Gates:
        z = self._cap(self.i_proj(x) + self.i_bias)
        return self.log_input(z if self.input_gate == "exponential" else F.logsigmoid(z))

    def _log_decays(self, x: Stream) -> Float[Tensor, "batch time head 1"] | None:
        if self.decay == "none":
            return None
        z = self.f_bias.expand(*x.shape[:2], -1)
        if self.decay == "head":
            z = self.f_proj(x) + z
        return self.log_decay(F.logsigmoid(self._cap(z)))[..., None]

    def _cap(self, z: Gates) -> Gates:
        return self.soft_cap * torch.tanh(z / self.soft_cap)
