"""RG-LRU in Griffin's recurrent block (De et al. 2024, §2.3 and 2.4), as in RecurrentGemma.

c = conv(W u);   r = σ(W_a c + b_a),   i = σ(W_i c + b_i);   log a = −8 softplus(Λ) r
h_t = a_t ∘ h_{t−1} + √(1 − a_t²) ∘ i_t ∘ c_t,   without the root at the first token
out = W (h ∘ gelu(W u))

The memory is one number for each channel, with neither keys nor queries.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mecheval.models.layers import ShortConv, split_heads
from mecheval.models.mixer_options.gated import RGLRUOptions
from mecheval.models.mixers import Output, Stream
from mecheval.models.ops import Reads, gather_reads
from mecheval.models.ops.linear_scan import (
    complement,
    linear_scan,
    linear_scan_read,
    linear_scan_ref,
    propagate_edit,
)
from mecheval.models.site import Site

Inner = Float[Tensor, "batch time d_rnn"]
Weights = Float[Tensor, "batch d_rnn time source"]
SHARPNESS = 8.0  # the constant c of the paper


class BlockLinear(nn.Module):
    """A linear layer whose weight is a block of its own for every head."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        block = channels // heads
        self.weight = nn.Parameter(torch.randn(heads, block, block) * block**-0.5)
        self.bias = nn.Parameter(torch.zeros(heads, block))

    def forward(self, x: Inner) -> Inner:
        y = torch.einsum("bthi,hij->bthj", split_heads(x, len(self.weight)), self.weight)
        return (y + self.bias).flatten(start_dim=2)


class RGLRU(RGLRUOptions, nn.Module):
    def __post_init__(self) -> None:
        super().__post_init__()
        d_model, d_rnn, d_conv = self.d_model, self.d_rnn, self.d_conv
        self.x_proj = nn.Linear(d_model, d_rnn)
        self.conv = ShortConv(d_rnn, d_conv) if d_conv else nn.Identity()
        self.conv_out = Site("batch time d_rnn", "the stream after the short convolution")
        if self.decay != "none":
            self.Lambda = nn.Parameter(_draw_rates(d_rnn))
            self.log_decay = Site("batch time d_rnn", "log a: how much each channel keeps")
        if self.decay == "gated":
            self.a_gate = BlockLinear(d_rnn, self.heads)
        if self.input_gate:
            self.i_gate = BlockLinear(d_rnn, self.heads)
        self.written = Site("batch time d_rnn", "what is added to each channel")
        about = "the memory after each token; later tokens continue from an edited one"
        self.state = Site("batch time d_rnn", about, materialised=True)
        self.lru_out = Site("batch time d_rnn", "what is read out of the memory")
        if self.gate:
            self.g_proj = nn.Linear(d_model, d_rnn)
        self.gate_out = Site("batch time d_rnn", "what is read out times the gate")
        self.out_proj = nn.Linear(d_rnn, d_model)

    def forward(self, x: Stream) -> Stream:
        a, written = self._gates(self.conv_out(self.conv(self.x_proj(x))))
        return self._output(self.lru_out(self._recur(a, written)), x)

    def read(self, x: Stream, at: Reads) -> Output:
        """Return the output at some positions; of a single one, only its state is kept."""
        if at.shape[1] > 1:
            return gather_reads(self(x), at)
        h = linear_scan_read(*self._gates(self.conv(self.x_proj(x))), at)
        return self._output(h, gather_reads(x, at))

    def mixing(self, x: Stream) -> tuple[Weights, Float[Tensor, "batch source d_rnn 1"]]:
        """Return W, how much of each c_s is in h_t, and c; their product passes `lru_out`.

        Every channel is a head of its own, of width 1.
        """
        c = self.conv_out(self.conv(self.x_proj(x)))
        scale = self._input_scale(log_a := self._log_decays(c), c)
        a = torch.ones_like(c) if log_a is None else log_a.exp()
        # given a, the scan is linear: the output for a 1 at s alone is column s
        ones = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)[..., None]
        columns = [linear_scan(a, one * scale) for one in ones]
        return torch.stack(columns, dim=-1).transpose(1, 2), c[..., None]

    def state_size(self, time: int) -> int:
        return self.d_rnn * max(self.d_conv, 1)

    def _recur(self, a: Inner, written: Inner) -> Inner:
        """Return every h_t; the memory passes its site if that is used."""
        if not self.state.used:
            return linear_scan(a, written)
        h = linear_scan_ref(a, written)  # without the kernel, in which no operation is counted
        return propagate_edit(a, written, h, self.state(h))

    def _gates(self, c: Inner) -> tuple[Inner, Inner]:
        """Return what each channel keeps, and what is written to it."""
        log_a = self._log_decays(c)
        a = torch.ones_like(c) if log_a is None else log_a.exp()
        return a, self.written(self._input_scale(log_a, c) * c)

    def _log_decays(self, c: Inner) -> Inner | None:
        if self.decay == "none":
            return None
        log_a = (-SHARPNESS * F.softplus(self.Lambda)).expand_as(c)
        if self.decay == "gated":
            log_a = log_a * self.a_gate(c).sigmoid()
        return self.log_decay(log_a)

    def _input_scale(self, log_a: Inner | None, c: Inner) -> Inner:
        """Return √(1 − a²) ∘ i."""
        scale = self.i_gate(c).sigmoid() if self.input_gate else torch.ones_like(c)
        if log_a is None:
            return scale
        first = torch.ones_like(c[:, :1])
        return scale * torch.cat([first, complement(log_a[:, 1:])], dim=1)

    def _output(self, h: Inner, x: Stream) -> Output:
        y = h * F.gelu(self.g_proj(x), approximate="tanh") if self.gate else h
        return self.out_proj(self.gate_out(y))


def _draw_rates(count: int) -> Float[Tensor, " {count}"]:
    """Draw Λ so that exp(−softplus(Λ)) has a square that is uniform in [0.9², 0.999²]."""
    rates = -0.5 * torch.empty(count).uniform_(0.9**2, 0.999**2).log()
    return torch.expm1(rates).log()
