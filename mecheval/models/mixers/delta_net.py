"""DeltaNet (Yang et al. 2024): a memory written by the delta rule.

q, k, v = silu(conv(W x));  q, k normalised, q / √d_head;  β = sigmoid(W x)
S_t = S_{t−1} + β_t k_t (v_t − k_tᵀ S_{t−1})ᵀ;  o_t = rms_norm(S_tᵀ q_t)
"""

import torch
from torch import Tensor, nn

from mecheval.models.layers import RMSNorm, ShortConvSilu, conv_silu, l2_normalise, split_heads
from mecheval.models.mixer_options.paper import DeltaNetOptions
from mecheval.models.mixers import Mixed, Output, Stream
from mecheval.models.ops import Reads, gather_reads
from mecheval.models.ops.delta_rule import (
    delta_read,
    delta_rule,
    delta_states,
    propagate_edit,
    read_states,
)
from mecheval.models.site import Site


class DeltaNet(DeltaNetOptions, nn.Module):
    def __post_init__(self) -> None:
        super().__post_init__()
        d_model, heads, d_conv = self.d_model, self.heads, self.d_conv
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.b_proj = nn.Linear(d_model, heads, bias=False)
        self.q_conv = conv_silu(d_model, d_conv)
        self.k_conv = conv_silu(d_model, d_conv)
        self.v_conv = conv_silu(d_model, d_conv)
        self.norm = RMSNorm(d_model // heads, eps=1e-5)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)
        self.q_conv_out = Site("batch time d_model", "queries after convolution and silu")
        self.k_conv_out = Site("batch time d_model", "keys after convolution and silu")
        self.v_conv_out = Site("batch time d_model", "values after convolution and silu")
        self.beta = Site("batch time head", "how much of a key's old value is replaced")
        about = "the memory after each token; later tokens continue from an edited one"
        self.state = Site("batch time head d_key d_value", about, True)
        self.head_out = Site("batch time head d_head", "what each head reads, before the norm")

    def forward(self, x: Stream) -> Stream:
        o = self.head_out(self._read_memory(*self._project(x)))
        return self.o_proj(self.norm(o).flatten(start_dim=-2))

    def read(self, x: Stream, at: Reads) -> Output:
        """Return the output at some positions: queries are computed only there."""
        if self.backend == "fla":
            return gather_reads(self(x), at)
        q = split_heads(self.q_conv.read(x, at, self.q_proj), self.heads)
        o = delta_read(l2_normalise(q, q.shape[-1] ** -0.5), *self._project_writes(x), at)
        return self.o_proj(self.norm(o).flatten(start_dim=-2))

    def mixing(self, x: Stream) -> Mixed:
        """Return W, how much of each v_s is in o_t, and v; their product passes `head_out`.

        W = tril(Q Kᵀ) (I + tril(β K Kᵀ, −1))⁻¹ diag(β)
        """
        q, k, v, beta = self._project(x)
        q, k, beta = (part.transpose(1, 2) for part in (q, k, beta[..., None]))
        # the solver reads only what is below the diagonal, and takes the diagonal as 1
        overlap, reads = (beta * k) @ k.mT, (q @ k.mT).tril()
        solve = torch.linalg.solve_triangular
        W = solve(overlap, reads, upper=False, left=False, unitriangular=True) * beta.mT
        return W, v

    def state_size(self, time: int) -> int:
        d_model = self.o_proj.in_features
        size = d_model * d_model // self.heads
        for conv in (self.q_conv, self.k_conv, self.v_conv):
            if isinstance(conv, ShortConvSilu):
                size += d_model * (conv.kernel_size[0] - 1)
        return size

    def _project(self, x: Stream) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return q, k, v and β."""
        q = split_heads(self.q_conv_out(self.q_conv(self.q_proj(x))), self.heads)
        return l2_normalise(q, q.shape[-1] ** -0.5), *self._project_writes(x)

    def _project_writes(self, x: Stream) -> tuple[Tensor, Tensor, Tensor]:
        """Return what is written: k, v and β."""
        k = split_heads(self.k_conv_out(self.k_conv(self.k_proj(x))), self.heads)
        v = split_heads(self.v_conv_out(self.v_conv(self.v_proj(x))), self.heads)
        return l2_normalise(k), v, self.beta(self.b_proj(x).sigmoid())

    def _read_memory(self, q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
        if self.state.used:
            states = delta_states(k, v, beta)
            return read_states(q, propagate_edit(k, beta, states, self.state(states)))
        return delta_rule(q, k, v, beta, backend=self.backend)
