"""Hyena (Poli et al. 2023): gates around an implicit long convolution.

x₁, x₂, v = short_conv(W x);   y = W' (x₂ ∘ (h * (x₁ ∘ v)))
h_i = sine_mlp(t_i, cos ωi, −sin ωi) · exp(−t_i |δ|)
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mecheval.models.layers import ShortConv
from mecheval.models.mixer_options.paper import HyenaOptions
from mecheval.models.mixers import Output, Stream
from mecheval.models.ops import Reads, gather_reads
from mecheval.models.ops.filters import decay_rates, position_features
from mecheval.models.ops.long_conv import long_conv, long_read
from mecheval.models.ops.short_conv import short_conv
from mecheval.models.site import Site


class Hyena(HyenaOptions, nn.Module):
    def __post_init__(self) -> None:
        super().__post_init__()
        d_model = self.d_model
        self.in_proj = nn.Linear(d_model, 3 * d_model)
        self.short_conv = ShortConv(3 * d_model, self.short)
        self.filter = SineFilter(d_model, self.max_len, self.filter_order)
        self.D = nn.Parameter(torch.randn(d_model)) if self.skip else None
        self.out_proj = nn.Linear(d_model, d_model)
        about = "x₁, x₂ and v, concatenated, after the short convolution"
        self.conv_out = Site("batch time projections", about)
        about = "the long convolution's output, before the second gate"
        self.long_out = Site("batch time d_model", about)

    def forward(self, x: Stream) -> Stream:
        x1, x2, v = self.conv_out(self.short_conv(self.in_proj(x))).chunk(3, dim=-1)
        v = v * x1
        y = long_conv(v, self.filter(x.shape[1]))
        y = self.long_out(y if self.D is None else y + self.D * v)
        return self.out_proj(y * x2)

    def read(self, x: Stream, at: Reads) -> Output:
        """Return the output at some positions: the second gate is computed only there."""
        assert self.short_conv.bias is not None
        W1, _, Wv = self.in_proj.weight.chunk(3)
        b1, _, bv = self.in_proj.bias.chunk(3)
        w1, _, wv = self.short_conv.weight[:, 0].chunk(3)
        c1, _, cv = self.short_conv.bias.chunk(3)
        v = short_conv(F.linear(x, Wv, bv), wv, cv) * short_conv(F.linear(x, W1, b1), w1, c1)
        _, x2, _ = self.short_conv.read(x, at, self.in_proj).chunk(3, dim=-1)
        y = long_read(v, self.filter(x.shape[1]), at)
        if self.D is not None:
            y = y + self.D * gather_reads(v, at)
        return self.out_proj(y * x2)

    def state_size(self, time: int) -> int:
        d_model = self.out_proj.in_features
        return d_model * time + 3 * d_model * (self.short_conv.kernel_size[0] - 1)


class SineFilter(nn.Module):
    """An MLP of the position with sine activations, times a fixed decay.

    All layers share one trained frequency for each hidden unit.
    """

    def __init__(self, d_model: int, max_len: int, order: int) -> None:
        super().__init__()
        self.features = nn.Parameter(position_features(max_len))
        self.frequency = nn.Parameter(torch.ones(order))
        self.register_buffer("times", position_features(max_len)[:, :1], persistent=False)
        self.register_buffer("decay", decay_rates(d_model), persistent=False)
        sizes = (3, order), (order, order), (order, order)
        self.layers = nn.ModuleList([nn.Linear(*size) for size in sizes])
        self.out = nn.Linear(order, d_model, bias=False)

    def forward(self, time: int) -> Float[Tensor, "time d_model"]:
        assert isinstance(self.times, Tensor)
        assert isinstance(self.decay, Tensor)
        h = self.features[:time]
        for layer in self.layers:
            h = torch.sin(self.frequency * layer(h))
        return self.out(h) * torch.exp(-self.times[:time] * self.decay)
