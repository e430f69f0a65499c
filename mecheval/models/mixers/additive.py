"""GLA and RetNet share a memory that decays and adds, and a gate on what is read.

q, k, v = W x, or silu(conv(W x)) with a short convolution, as in fla
S_t = Diag(w_t) S_{t−1} + k_t v_tᵀ
o_t = rms_norm(S_tᵀ q_t / √d_key) ∘ silu(W x)
"""

from torch import nn

from mecheval.models.layers import RMSNorm, ShortConv, ShortConvSilu, Unchanged, split_heads
from mecheval.models.mixer_options.additive import AdditiveOptions
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


class Additive(AdditiveOptions, Recurrent):
    """A mixer says how fast its memory decays, and may turn queries and keys."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.q_proj = nn.Linear(self.d_model, self.d_key, bias=False)
        self.k_proj = nn.Linear(self.d_model, self.d_key, bias=False)
        self.v_proj = nn.Linear(self.d_model, self.d_value, bias=False)
        self.q_conv, self.q_conv_out = self._conv(self.d_key, "key_width", "queries")
        self.k_conv, self.k_conv_out = self._conv(self.d_key, "key_width", "keys")
        self.v_conv, self.v_conv_out = self._conv(self.d_value, "value_width", "values")
        self.query = Site("batch time head d_key", "queries")
        self.key = Site("batch time head d_key", "keys")
        self.value = Site("batch time head d_value", "values")
        self.add_decay()
        self.add_memory_sites()
        if self.norm:
            self.o_norm = RMSNorm(self.d_value // self.heads, eps=1e-5)
        if self.gate:
            self.g_proj = nn.Linear(self.d_model, self.d_value, bias=False)
            about = "what is read times the gate, before the output projection"
            self.gate_out = Site("batch time value_width", about)
        self.o_proj = nn.Linear(self.d_value, self.d_model, bias=False)

    def add_decay(self) -> None:
        """Build the layers that decide how fast the memory decays."""

    def log_decays(self, x: Stream) -> LogDecays | None:
        """Return log w, or None if nothing decays."""
        raise NotImplementedError

    def turn(self, x: Keys, time: int, at: Reads | None = None) -> Keys:
        """Return queries or keys of all of `time` positions, or at some, as they meet."""
        return x

    def queries(self, x: Stream, at: Reads | None = None) -> Queries | ReadQueries:
        time = x.shape[1]
        if at is None:
            q = self.q_conv_out(self.q_conv(self.q_proj(x)))
            q = self.query(self.turn(split_heads(q, self.heads), time))
        else:
            q = split_heads(self.q_conv.read(x, at, self.q_proj), self.heads)
            q = self.turn(q, time, at)
        return q * q.shape[-1] ** -0.5

    def writes(self, x: Stream) -> Writes:
        k = split_heads(self.k_conv_out(self.k_conv(self.k_proj(x))), self.heads)
        v = split_heads(self.v_conv_out(self.v_conv(self.v_proj(x))), self.heads)
        return Writes(self.key(self.turn(k, x.shape[1])), self.value(v), self.log_decays(x))

    def output(self, o: Outputs | ReadOutputs, x: Stream) -> Stream:
        y = (self.o_norm(o) if self.norm else o).flatten(start_dim=-2)
        return self.o_proj(self.gate_out(silu_gate(y, self.g_proj(x))) if self.gate else y)

    def state_size(self, time: int) -> int:
        return self.d_key // self.heads * self.d_value + self.conv_state_size()

    def _conv(self, channels: int, axis: str, what: str) -> tuple[ShortConv | Unchanged, nn.Module]:
        about = f"{what} after convolution and silu"
        return optional_conv(ShortConvSilu, channels, self.d_conv, axis, about)


def optional_conv(
    kind: type[ShortConv], channels: int, d_conv: int, axis: str, about: str
) -> tuple[ShortConv | Unchanged, nn.Module]:
    """Return a short convolution and its site; of width 0, what changes nothing and no site."""
    if not d_conv:
        return Unchanged(), nn.Identity()
    return kind(channels, d_conv, bias=False), Site(f"batch time {axis}", about)
