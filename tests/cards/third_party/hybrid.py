"""Two mixers in one: a short convolution and attention, added."""

from torch import nn

from mecheval.models.mixers.attention import Attention
from mecheval.models.mixers.base_conv import BaseConv


class Hybrid(nn.Module):
    """Half convolution, half attention."""

    def __init__(self, d_model: int, max_len: int, *, heads: int = 1):
        super().__init__()
        self.near = BaseConv(d_model, max_len, kernel=3)
        self.far = Attention(d_model, max_len, heads=heads)

    def forward(self, x):
        return self.near(x) + self.far(x)
