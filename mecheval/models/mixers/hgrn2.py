"""HGRN2 (Qin et al. 2024): a gated linear RNN, whose state is expanded by an outer product.

f_t = β + (1 − β) sigmoid(W x_t), what is kept, at least β
S_t = Diag(f_t) S_{t−1} + (1 − f_t) i_tᵀ,  i_t = W x_t: what is forgotten makes room for the input
o_t = rms_norm(S_tᵀ q_t / √d_key),  q_t = silu(W x_t)

The published model learns β for every layer and channel, so that it grows with depth. Here it is
an option, one number.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from mecheval.models.layers import RMSNorm, ShortConv, split_heads
from mecheval.models.mixer_options.additive import HGRN2Options
from mecheval.models.mixers import Stream
from mecheval.models.mixers.additive import optional_conv
from mecheval.models.mixers.recurrent import Recurrent
from mecheval.models.ops import Reads
from mecheval.models.ops.recurrence import (
    LogDecays,
    Outputs,
    Queries,
    ReadOutputs,
    ReadQueries,
    Writes,
)
from mecheval.models.site import Site


class HGRN2(HGRN2Options, Recurrent):
    def __post_init__(self) -> None:
        super().__post_init__()
        width, d_conv, axis = self.d_model, self.d_conv, "d_model"
        self.q_proj = nn.Linear(width, width, bias=False)
        self.f_proj = nn.Linear(width, width, bias=False)
        self.i_proj = nn.Linear(width, width, bias=False)
        about = "queries after convolution, before silu"
        self.q_conv, self.q_conv_out = optional_conv(ShortConv, width, d_conv, axis, about)
        about = "forget gates after convolution, before sigmoid"
        self.f_conv, self.f_conv_out = optional_conv(ShortConv, width, d_conv, axis, about)
        about = "values after convolution"
        self.i_conv, self.i_conv_out = optional_conv(ShortConv, width, d_conv, axis, about)
        self.query = Site("batch time head d_key", "queries")
        self.key = Site("batch time head d_key", "keys, 1 − f: how much is forgotten")
        self.value = Site("batch time head d_value", "values, the input i")
        if self.decay:
            self.log_decay = Site("batch time head d_key", "log f: how much the memory keeps")
        self.add_memory_sites()
        if self.norm:
            self.g_norm = RMSNorm(width, eps=1e-5)
        self.o_proj = nn.Linear(width, width, bias=False)

    def queries(self, x: Stream, at: Reads | None = None) -> Queries | ReadQueries:
        if at is None:
            q = F.silu(self.q_conv_out(self.q_conv(self.q_proj(x))))
            q = self.query(split_heads(q, self.heads))
        else:
            q = split_heads(F.silu(self.q_conv.read(x, at, self.q_proj)), self.heads)
        return q * q.shape[-1] ** -0.5

    def writes(self, x: Stream) -> Writes:
        z = split_heads(self.f_conv_out(self.f_conv(self.f_proj(x))), self.heads)
        i = split_heads(self.i_conv_out(self.i_conv(self.i_proj(x))), self.heads)
        forgotten = (1 - self.lower_bound) * (-z).sigmoid()
        log_f = self.log_decay(self._log_kept(z)) if self.decay else None
        return Writes(self.key(forgotten), self.value(i), log_f)

    def output(self, o: Outputs | ReadOutputs, x: Stream) -> Stream:
        y = o.flatten(start_dim=-2)
        return self.o_proj(self.g_norm(y) if self.norm else y)

    def state_size(self, time: int) -> int:
        return self.d_model // self.heads * self.d_model + self.conv_state_size()

    def _log_kept(self, z: LogDecays) -> LogDecays:
        """Return log f, also where f is too small to be computed first."""
        if not self.lower_bound:
            return F.logsigmoid(z)
        least = z.new_tensor(math.log(self.lower_bound))
        return torch.logaddexp(least, math.log1p(-self.lower_bound) + F.logsigmoid(z))
