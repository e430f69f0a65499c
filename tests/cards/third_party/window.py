"""Sliding-window attention with rotary positions."""

import torch
from torch import nn


class Window(nn.Module):
    """Every token looks at itself and at so many before it."""

    def __init__(self, d_model: int, max_len: int, width: int = 16):
        super().__init__()
        self.width = width
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)
        rates = 10_000.0 ** -torch.linspace(0, 1, d_model // 2)
        self.register_buffer("rates", rates, persistent=False)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.out_proj(self.mixing_of(self.rotated(q), self.rotated(k)) @ v)

    def mixing_of(self, q, k):
        back = torch.arange(q.shape[1])[:, None] - torch.arange(q.shape[1])
        outside = (back < 0) | (back >= self.width)
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(outside, -torch.inf)
        return scores.softmax(dim=-1)

    def mixing(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.mixing_of(self.rotated(q), self.rotated(k))[:, None], v[:, None]

    def rotated(self, x):
        angle = torch.arange(x.shape[1], dtype=x.dtype)[:, None] * self.rates.to(x.dtype)
        even, odd = x[..., ::2], x[..., 1::2]
        turned = (even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos())
        return torch.stack(turned, dim=-1).flatten(-2)
