"""Causal softmax attention (Vaswani et al. 2017).

o_t = Σ_{s≤t} softmax_s(q_t·k_s / √d_head) v_s
"""

import torch
from torch import Tensor, nn

from mecheval.models.layers import split_heads
from mecheval.models.mixer_options.paper import AttentionOptions
from mecheval.models.mixers import Mixed, Output, Stream
from mecheval.models.ops import Reads
from mecheval.models.ops.causal_attention import (
    attention_read,
    attention_weights,
    causal_attention,
)
from mecheval.models.site import Site

HEADS = "batch time head d_head"


class Attention(AttentionOptions, nn.Module):
    def __post_init__(self) -> None:
        super().__post_init__()
        d_model = self.d_model
        self.qkv_proj = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out_proj = nn.Linear(d_model, d_model)
        self.query = Site(HEADS, "queries")
        self.key = Site(HEADS, "keys")
        self.value = Site(HEADS, "values")
        self.scores = Site("batch head time source", "attention weights; rows sum to 1", True)
        self.head_out = Site(HEADS, "what each head reads, before the output projection")

    def forward(self, x: Stream) -> Stream:
        q, k, v = self._project(x)
        if self.scores.used:
            o = torch.einsum("bhts,bshd->bthd", self.scores(attention_weights(q, k)), v)
        else:
            o = causal_attention(q, k, v)
        return self.out_proj(self.head_out(o).flatten(start_dim=-2))

    def read(self, x: Stream, at: Reads) -> Output:
        """Return the output at some positions, without keys and values of all tokens."""
        return self.out_proj(attention_read(x, self.qkv_proj.weight, at, self.heads))

    def mixing(self, x: Stream) -> Mixed:
        """Return the attention weights and the values; their product passes `head_out`."""
        q, k, v = self._project(x)
        return self.scores(attention_weights(q, k)), v

    def state_size(self, time: int) -> int:
        return 2 * self.out_proj.in_features * time

    def _project(self, x: Stream) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (split_heads(part, self.heads) for part in self.qkv_proj(x).chunk(3, dim=-1))
        return self.query(q), self.key(k), self.value(v)
