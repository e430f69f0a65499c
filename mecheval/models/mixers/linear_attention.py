"""Linear attention of Based (Arora et al. 2024b).

The 2nd-order Taylor series takes the place of the exponential.
"""

import torch
from torch import nn

from mecheval.models.layers import split_heads
from mecheval.models.mixer_options.paper import LinearAttentionOptions
from mecheval.models.mixers import Mixed, Output, Stream
from mecheval.models.ops import Reads, gather_reads
from mecheval.models.ops.linear_attention import mixing_weights, read_weights
from mecheval.models.site import Site


class LinearAttention(LinearAttentionOptions, nn.Module):
    def __post_init__(self) -> None:
        super().__post_init__()
        d_model, heads, feature_dim = self.d_model, self.heads, self.feature_dim
        self.q_proj = nn.Linear(d_model, heads * feature_dim, bias=False)
        self.k_proj = nn.Linear(d_model, heads * feature_dim, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)
        self.query = Site("batch time head feature_dim", "queries, before the feature map")
        self.key = Site("batch time head feature_dim", "keys, before the feature map")
        self.value = Site("batch time head d_head", "values")
        self.scores = Site("batch head time source", "mixing weights; rows sum to 1")
        about = "what each head reads, before the output projection"
        self.head_out = Site("batch time head d_head", about)

    def forward(self, x: Stream) -> Stream:
        weights, v = self.mixing(x)
        o = self.head_out(torch.einsum("bhts,bshd->bthd", weights, v))
        return self.o_proj(o.flatten(start_dim=-2))

    def read(self, x: Stream, at: Reads) -> Output:
        """Return the output at some positions, without values: Σ a W_v x = W_v Σ a x."""
        q = split_heads(self.q_proj(gather_reads(x, at)), self.heads)
        k = split_heads(self.k_proj(x), self.heads)
        W_v = self.v_proj.weight.view(self.heads, -1, x.shape[2])
        o = torch.einsum("bhrs,bsm,hdm->brhd", read_weights(q, k, at), x, W_v)
        return self.o_proj(o.flatten(start_dim=-2))

    def mixing(self, x: Stream) -> Mixed:
        """Return the mixing weights and the values; their product passes `head_out`."""
        q, k = (split_heads(proj(x), self.heads) for proj in (self.q_proj, self.k_proj))
        v = self.value(split_heads(self.v_proj(x), self.heads))
        return self.scores(mixing_weights(self.query(q), self.key(k))), v

    def state_size(self, time: int) -> int:
        d = self.q_proj.out_features // self.heads
        features = 1 + d + d * (d + 1) // 2  # x⊗x is symmetric
        return features * (self.v_proj.out_features + self.heads)
