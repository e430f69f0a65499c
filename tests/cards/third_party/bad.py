"""Five mixers that must get no card, and one that is as it should be."""

import torch
from torch import nn

from mecheval import Site


class Mean(nn.Module):
    """The mean of what came before. `note` is for whoever reads it."""

    def __init__(self, d_model: int, max_len: int, *, note: str = ""):
        super().__init__()
        self.proj = nn.Linear(d_model, d_model)
        self.inner = Site("batch time d_model", "what is averaged")

    def forward(self, x):
        x = self.inner(self.proj(x))
        return x.cumsum(dim=1) / torch.arange(1, x.shape[1] + 1, dtype=x.dtype)[:, None]


class Leaks(Mean):
    def forward(self, x):
        return super().forward(x).flip(1).cumsum(dim=1).flip(1)


class KeepsState(Mean):
    kept = 0.0

    def forward(self, x):
        self.kept = self.kept + 1.0
        return super().forward(x) + self.kept


class MixesTheBatch(Mean):
    def forward(self, x):
        return super().forward(x - x.mean(dim=0, keepdim=True))


class DeadSite(Mean):
    def __init__(self, d_model: int, max_len: int):
        super().__init__(d_model, max_len)
        self.unused = Site("batch time d_model", "nobody comes here")


class NotANumber(Mean):
    def forward(self, x):
        return super().forward(x) / 0.0 * 0.0
