"""Mixers that do not learn recall, each for a known reason."""

import torch.nn.functional as F
from torch import Tensor, nn


class Near(nn.Module):
    """Reads its own token and the two before it: it cannot reach most pairs."""

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(d_model, d_model, 3)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.out_proj(F.silu(self.conv(F.pad(x.mT, (2, 0))).mT))


class SmallState(nn.Module):
    """Linear attention behind a short convolution; its state has d_key rows."""

    def __init__(self, d_model: int, max_len: int, *, d_key: int = 2) -> None:
        super().__init__()
        self.sizes = (d_key, d_key, d_model)
        self.conv = nn.Conv1d(d_model, d_model, 2, groups=d_model)
        self.in_proj = nn.Linear(d_model, sum(self.sizes))
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.conv(F.pad(x.mT, (1, 0))).mT)
        q, k, v = self.in_proj(y).split(self.sizes, dim=-1)
        weights = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT
        return self.out_proj(weights.tril() @ v)
