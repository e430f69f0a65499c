"""A mixer whose work is done by a module that nobody can see into."""

import torch
from torch import nn


class _Inner(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self._weights = nn.Parameter(torch.randn(d_model, d_model) / d_model**0.5)

    def forward(self, x):
        counts = torch.arange(1, x.shape[1] + 1, dtype=x.dtype)[:, None]
        return (x @ self._weights).cumsum(dim=1) / counts


class Private(nn.Module):
    """The mean of what came before, turned."""

    def __init__(self, d_model, max_len, device=None):
        super().__init__()
        self._inner = _Inner(d_model)

    def forward(self, x):
        return self._inner(x)
