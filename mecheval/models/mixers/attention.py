"""Causal softmax attention (Vaswani et al. 2017): o_t = Σ_{s≤t} softmax_s(q_t·k_s / √d_head) v_s."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mecheval.models.layers import split_heads
from mecheval.models.mixer_options import AttentionOptions
from mecheval.models.ops.attention_read import attention_read
from mecheval.models.ops.causal_attention import attention_weights, causal_attention
from mecheval.models.ops.reads import Reads
from mecheval.models.site import Site

Stream = Float[Tensor, "batch time d_model"]
Weights = Float[Tensor, "batch head time source"]


class Attention(AttentionOptions, nn.Module):
    def __post_init__(self) -> None:
        super().__post_init__()
        d_model = self.d_model
        self.qkv_proj = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out_proj = nn.Linear(d_model, d_model)
        self.query = Site("batch time head d_head", "queries")
        self.key = Site("batch time head d_head", "keys")
        self.value = Site("batch time head d_head", "values")
        self.scores = Site(
            "batch head time source", "attention weights: where each position looks; rows sum to 1", True
        )
        self.head_out = Site("batch time head d_head", "what each head read, before the output projection")

    def forward(self, x: Stream) -> Stream:
        q, k, v = self._projected(x)
        o = self.head_out(self._weighed(q, k, v) if self.scores.used else causal_attention(q, k, v))
        return self.out_proj(o.flatten(start_dim=-2))

    def read(self, x: Stream, at: Reads) -> Float[Tensor, "batch reads d_model"]:
        """The output at some positions, computed nowhere else."""
        return self.out_proj(attention_read(x, self.qkv_proj.weight, at, self.heads))

    def mixing(self, x: Stream) -> tuple[Weights, Float[Tensor, "batch source head d_head"]]:
        """Where each position looks, and what it sees there: their product passes `head_out`."""
        q, k, v = self._projected(x)
        return self.scores(attention_weights(q, k)), v

    def state_size(self, time: int) -> int:
        """How many numbers must be kept to go on after so many tokens."""
        return 2 * self.out_proj.in_features * time

    def _projected(self, x: Stream) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (split_heads(part, self.heads) for part in self.qkv_proj(x).chunk(3, dim=-1))
        return self.query(q), self.key(k), self.value(v)

    def _weighed(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = self.scores(attention_weights(q, k))
        return torch.einsum("bhts,bshd->bthd", weights, v)
