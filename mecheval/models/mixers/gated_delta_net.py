"""Gated DeltaNet (Yang et al. 2025): the delta rule on a memory that decays first.

q, k, v = silu(conv(W x));  q, k normalised, q / √d_key;  β = sigmoid(W x)
w = exp(−exp(A) softplus(W x + b)), one for each head
S_t = w_t S_{t−1} + β_t k_t (v_t − w_t S_{t−1}ᵀ k_t)ᵀ
o_t = rms_norm(S_tᵀ q_t) ∘ silu(W x)

Every part can be switched off, down to linear attention. With `householders`, a token writes
several times, one after the other, as in DeltaProduct (Siems et al. 2025); the memory decays before
the first of them.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mecheval.models.layers import (
    RMSNorm,
    conv_silu,
    draw_step_bias,
    l2_normalise,
    retention_log_decays,
    split_heads,
)
from mecheval.models.mixer_options.recurrent import GatedDeltaNetOptions
from mecheval.models.mixers import Stream
from mecheval.models.mixers.recurrent import Recurrent
from mecheval.models.ops import Reads
from mecheval.models.ops.per_token import silu_gate
from mecheval.models.ops.recurrence import (
    Keys,
    LogDecays,
    Outputs,
    Queries,
    ReadOutputs,
    ReadQueries,
    Writes,
)
from mecheval.models.site import Site

EPSILON = 1e-6  # of the normaliser


class GatedDeltaNet(GatedDeltaNetOptions, Recurrent):
    slowest = 0  # the rates exp(A) are drawn from here to 16

    def __post_init__(self) -> None:
        super().__post_init__()
        d_model, heads, times, d_conv = self.d_model, self.heads, self.householders, self.d_conv
        d_key, d_value = self.d_key, self.d_value
        self.q_proj = nn.Linear(d_model, d_key, bias=False)
        self.k_proj = nn.Linear(d_model, times * d_key, bias=False)
        self.v_proj = nn.Linear(d_model, times * d_value, bias=False)
        self.q_conv = conv_silu(d_key, d_conv)
        self.k_conv = conv_silu(times * d_key, d_conv)
        self.v_conv = conv_silu(times * d_value, d_conv)
        self.q_conv_out = Site("batch time key_width", "queries after convolution and silu")
        self.k_conv_out = Site("batch time written_keys", "keys after convolution and silu")
        self.v_conv_out = Site("batch time written_values", "values after convolution and silu")
        if self.beta:
            self.b_proj = nn.Linear(d_model, times * heads, bias=False)
            self.strength = Site("batch time writes", "β: how much of each value is written")
        if self.decay in ("head", "channel"):
            decays = heads if self.decay == "head" else d_key
            self.a_proj = self.project_decays(decays)
            self.A_log = nn.Parameter(torch.empty(heads).uniform_(self.slowest, 16).log())
            self.dt_bias = nn.Parameter(draw_step_bias(decays))
            self.log_decay = Site("batch time head d_decay", "log w: how much the memory keeps")
        if self.gate:
            self.g_proj = self.project_gate()
        if self.norm:
            self.o_norm = RMSNorm(d_value // heads, eps=1e-5)
        self.o_proj = nn.Linear(d_value, d_model, bias=False)
        self.add_memory_sites()

    def project_decays(self, decays: int) -> nn.Module:
        return nn.Linear(self.d_model, decays, bias=False)

    def project_gate(self) -> nn.Module:
        return nn.Linear(self.d_model, self.d_value, bias=False)

    def gated(self, y: Stream, z: Stream) -> Stream:
        return silu_gate(y, z)

    def queries(self, x: Stream, at: Reads | None = None) -> Queries | ReadQueries:
        if at is None:
            q = self.q_conv_out(self.q_conv(self.q_proj(x)))
        else:
            q = self.q_conv.read(x, at, self.q_proj)
        q = split_heads(q, self.heads)
        return self._map(q) * q.shape[-1] ** -0.5

    def writes(self, x: Stream) -> Writes:
        k = self._split_writes(self.k_conv_out(self.k_conv(self.k_proj(x))))
        v = self._split_writes(self.v_conv_out(self.v_conv(self.v_proj(x))))
        k = key = self._map(k)
        if self.beta:
            beta = self.strength(self.b_proj(x).sigmoid() * (2 if self.neg_eigval else 1))
            k = self._split_writes(beta) * key
        if self.normaliser:
            v = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)  # adds up the weights
        log_w = self._log_decays(x)
        erase = (key if log_w is None else log_w.exp() * key) if self.delta else None
        return Writes(k, v, log_w, a=erase, steps=self.householders)

    def output(self, o: Outputs | ReadOutputs, x: Stream) -> Stream:
        if self.normaliser:
            o = o[..., :-1] / (o[..., -1:] + EPSILON)
        if self.norm:
            o = self.o_norm(o)
        y = o.flatten(start_dim=-2)
        return self.o_proj(self.gated(y, self.g_proj(x)) if self.gate else y)

    def state_size(self, time: int) -> int:
        columns = self.d_value + (self.heads if self.normaliser else 0)
        return self.d_key // self.heads * columns + self.conv_state_size()

    def _map(self, x: Keys) -> Keys:
        """Return the features of queries or keys, which a normaliser needs to be positive."""
        return F.elu(x) + 1 if self.normaliser else l2_normalise(x)

    def _log_decays(self, x: Stream) -> LogDecays | None:
        """Return log w; of several writes of a token, the first decays the memory."""
        if self.decay == "none":
            return None
        if self.decay == "constant":
            log_w = retention_log_decays(x, self.heads)
        else:
            rates = self.A_log.exp()[:, None]
            steps = F.softplus(self.a_proj(x) + self.dt_bias)
            log_w = self.log_decay(-rates * split_heads(steps, self.heads))
        if self.householders == 1:
            return log_w
        later = torch.zeros_like(log_w)
        return torch.stack([log_w] + [later] * (self.householders - 1), dim=2).flatten(1, 2)

    def _split_writes(self, x: Float[Tensor, "batch time channel"]) -> Keys:
        """Return every write as a step of its own, by head."""
        return x.view(len(x), -1, self.heads, x.shape[2] // (self.householders * self.heads))
