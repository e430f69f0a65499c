"""A gated linear recurrence behind a short convolution."""

import torch
import torch.nn.functional as F
from torch import nn

from mecheval import Site


class GatedRecurrence(nn.Module):
    """S ← a S + k vᵀ with a gate a for each key channel; the output is q S."""

    def __init__(self, d_model: int, max_len: int, *, d_key: int = 16, taps: int = 3):
        super().__init__()
        self.taps, self.sizes = taps, (d_key, d_key, d_key, d_model)
        self.conv = nn.Conv1d(d_model, d_model, taps, groups=d_model)
        self.proj = nn.Linear(d_model, sum(self.sizes))
        self.out_proj = nn.Linear(d_model, d_model)
        self.conv_out = Site("batch time d_model", "behind the short convolution")
        self.head_out = Site("batch time d_model", "what is read from the state")

    def forward(self, x):
        x = self.conv_out(F.silu(self.conv(F.pad(x.mT, (self.taps - 1, 0))).mT))
        q, k, a, v = self.proj(x).split(self.sizes, dim=-1)
        a, S, outs = torch.sigmoid(a + 4), 0.0, []
        for t in range(x.shape[1]):
            S = a[:, t, :, None] * S + k[:, t, :, None] * v[:, t, None]
            outs.append((q[:, t, None] @ S)[:, 0])
        return self.out_proj(self.head_out(torch.stack(outs, dim=1)))

    def state_size(self, tokens):
        return self.sizes[0] * self.sizes[3] + (self.taps - 1) * self.sizes[3]
