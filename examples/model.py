"""A model that does not import mecheval: a GRU, then attention. A mapping names its sites.

mecheval check examples/model.py:Small
mecheval show sites examples/model.py:Small
mecheval run recall:pairs=4,vocab=32 examples/model.py:Small \
    train.steps=300 train.batch=64 train.lr=3e-3 --out runs
mecheval intervene runs/recall-Small-… --plugin examples/model.py:Small
"""

from typing import ClassVar

import torch
from torch import Tensor, nn


class Recurrent(nn.Module):
    """x ← x + gru(norm(x))"""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.gru = nn.GRU(d_model, d_model, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gru(self.norm(x))[0]


class Attentive(nn.Module):
    """x ← x + attention(norm(x))"""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.attention = nn.MultiheadAttention(d_model, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        return x + self.attention(y, y, y, attn_mask=future, need_weights=False)[0]


class Small(nn.Module):
    """A GRU, then attention: tokens (batch, time) to logits (batch, time, vocab)."""

    sites: ClassVar = {
        "blocks.0.block_in": "input of blocks.0",
        "blocks.0.mixer_out": "output of blocks.0.gru",  # the first of its outputs y and last state
        "blocks.1.block_in": "input of blocks.1",
        "blocks.1.mixer_out": "output of blocks.1.attention",
        "final_in": "input of head",
    }

    def __init__(
        self, vocab_size: int, d_model: int, layers: int, max_len: int, *, heads: int = 1
    ) -> None:
        super().__init__()
        if layers != 2:
            raise ValueError(f"layers={layers} must be 2: a GRU and attention")
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.blocks = nn.Sequential(Recurrent(d_model), Attentive(d_model, heads))
        self.head = nn.Linear(d_model, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.blocks(self.embedding(tokens)))
