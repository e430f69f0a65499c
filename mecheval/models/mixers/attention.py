"""Causal softmax attention (Vaswani et al. 2017), with the options of today's Transformers.

o_t = Σ_{s≤t} softmax_s(q_t·k_s / √d_head) v_s

    window     the sum is over the last tokens only, t−window < s ≤ t (Beltagy et al. 2020)
    kv_heads   a group of heads shares keys and values (Ainslie et al. 2023)
    qk_norm    q and k of each head are normalised, as in Qwen3
    rotary     q and k are turned by angles that grow with t (Su et al. 2021), after the norm
"""

import torch
from torch import Tensor, nn

from mecheval.models.layers import RMSNorm, split_heads
from mecheval.models.mixer_options.paper import AttentionOptions
from mecheval.models.mixers import Mixed, Output, Stream
from mecheval.models.ops import Reads, gather_reads
from mecheval.models.ops.causal_attention import (
    Heads,
    attention_at,
    attention_read,
    attention_weights,
    causal_attention,
)
from mecheval.models.ops.rotary import rotary_angles, rotate
from mecheval.models.site import Site

HEADS, KV_HEADS = "batch time head d_head", "batch time kv_head d_head"


class Attention(AttentionOptions, nn.Module):
    def __post_init__(self) -> None:
        super().__post_init__()
        d_model, shared = self.d_model, self.kv_heads not in (0, self.heads)
        self.qkv_proj = nn.Linear(d_model, d_model + 2 * self.d_kv, bias=False)
        self.out_proj = nn.Linear(d_model, d_model)
        if self.qk_norm:
            self.q_norm = RMSNorm(d_model // self.heads, eps=1e-6)
            self.k_norm = RMSNorm(d_model // self.heads, eps=1e-6)
        self.query = Site(HEADS, "queries")
        self.key = Site(KV_HEADS if shared else HEADS, "keys")
        self.value = Site(KV_HEADS if shared else HEADS, "values")
        self.scores = Site("batch head time source", "attention weights; rows sum to 1", True)
        self.head_out = Site(HEADS, "what each head reads, before the output projection")

    def forward(self, x: Stream) -> Stream:
        q, k, v = self._project(x)
        if self.scores.used:
            weights = self.scores(attention_weights(q, k, self.window))
            o = torch.einsum("bhts,bshd->bthd", weights, v)
        else:
            o = causal_attention(q, k, v, self.window)
        return self.out_proj(self.head_out(o).flatten(start_dim=-2))

    def read(self, x: Stream, at: Reads) -> Output:
        """Return the output at some positions, without keys and values of all tokens if possible.

        Keys that are normalised or turned are not a linear function of the stream.
        """
        if not (self.window or self.rotary or self.qk_norm or self.d_kv < self.d_model):
            return self.out_proj(attention_read(x, self.qkv_proj.weight, at, self.heads))
        q, k, v = self._project(x)
        q = split_heads(gather_reads(q.flatten(start_dim=2), at), self.heads)
        return self.out_proj(attention_at(q, k, v, at, self.window).flatten(start_dim=-2))

    def mixing(self, x: Stream) -> Mixed:
        """Return the attention weights and the values; their product passes `head_out`."""
        q, k, v = self._project(x)
        return self.scores(attention_weights(q, k, self.window)), v

    def state_size(self, time: int) -> int:
        """Return how many keys and values the next token sees."""
        return 2 * self.d_kv * (min(time, self.window - 1) if self.window else time)

    def _project(self, x: Stream) -> tuple[Heads, Heads, Heads]:
        """Return queries, keys and values, the latter two for each of the heads that share them."""
        parts = self.qkv_proj(x).split(self.part_widths["qkv_proj"], dim=-1)
        width = self.d_model // self.heads
        q, k, v = (split_heads(part, part.shape[-1] // width) for part in parts)
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.rotary:
            angles = rotary_angles(x.shape[1], width, self.rotary_base)
            q, k = rotate(q, angles), rotate(k, angles)
        q, k, v = self.query(q), self.key(k), self.value(v)
        return q, self._for_all_heads(k), self._for_all_heads(v)

    def _for_all_heads(self, x: Tensor) -> Heads:
        return (
            x.repeat_interleave(self.heads // x.shape[2], dim=2) if x.shape[2] < self.heads else x
        )
