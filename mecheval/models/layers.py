"""Layers that blocks and several mixers share.

A layer's `read` returns its output at some positions without computing the others.
"""

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mecheval.models.ops import Reads, Stream, gather_reads
from mecheval.models.ops.filters import position_features
from mecheval.models.ops.per_token import mlp, rms_norm
from mecheval.models.ops.short_conv import short_conv, short_conv_silu
from mecheval.models.site import Site

Channels = Float[Tensor, "... channel"]
Output = Float[Tensor, "batch reads projected"]
Projection = Callable[[Tensor], Tensor]  # maps each position separately


def _identity(x: Tensor) -> Tensor:
    return x


class ShortConv(nn.Conv1d):
    """A causal depthwise convolution; `nn.Conv1d` holds and initialises its parameters."""

    def __init__(self, channels: int, width: int, bias: bool = True) -> None:
        super().__init__(channels, channels, width, groups=channels, bias=bias)

    def forward(self, x: Stream) -> Stream:
        return short_conv(x, self.weight[:, 0], self.bias)

    def read(self, x: Stream, at: Reads, project: Projection = _identity) -> Output:
        """Convolve project(x) at some positions; only what they need is projected."""
        places = at[..., None] + torch.arange(1 - self.kernel_size[0], 1, device=at.device)
        inputs = project(gather_reads(x, places.clamp(min=0).flatten(start_dim=1)))
        inputs = inputs.view(*places.shape, -1) * (places >= 0)[..., None]
        y = torch.einsum("brwc,cw->brc", inputs, self.weight[:, 0])
        return y if self.bias is None else y + self.bias


class ShortConvSilu(ShortConv):
    """A short convolution followed by silu."""

    def forward(self, x: Stream) -> Stream:
        return short_conv_silu(x, self.weight[:, 0], self.bias)

    def read(self, x: Stream, at: Reads, project: Projection = _identity) -> Output:
        return F.silu(super().read(x, at, project))


class Silu(nn.SiLU):
    """The silu alone, in place of `ShortConvSilu`."""

    def read(self, x: Stream, at: Reads, project: Projection = _identity) -> Output:
        return F.silu(project(gather_reads(x, at)))


def conv_silu(channels: int, width: int, bias: bool = False) -> ShortConvSilu | Silu:
    """Return a short convolution followed by silu; of width 0, the silu alone."""
    return ShortConvSilu(channels, width, bias) if width else Silu()


class ResidualConv(nn.Conv1d):
    """A short convolution added to its input, as Canon layers have it: x ← x + conv(x).

    It is causal and depthwise, without bias and without activation.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__(channels, channels, width, groups=channels, bias=False)
        self.added = Site("batch time channel", "what the short convolution adds")

    def forward(self, x: Stream) -> Stream:
        return x + self.added(short_conv(x, self.weight[:, 0]))


class ConvolvedLinear(nn.Linear):
    """A linear layer with short convolutions on some of its outputs.

    It takes over the weights of `linear`; `parts` are the channels of each place.
    """

    def __init__(self, linear: nn.Linear, parts: Mapping[str, slice], width: int) -> None:
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None)
        self.weight, self.bias, self.parts = linear.weight, linear.bias, parts
        for place, part in parts.items():
            setattr(self, f"sconv_{place}", ResidualConv(part.stop - part.start, width))

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        pieces, done = [], 0
        for place, part in sorted(self.parts.items(), key=lambda item: item[1].start):
            pieces += [y[..., done : part.start], getattr(self, f"sconv_{place}")(y[..., part])]
            done = part.stop
        return torch.cat([*pieces, y[..., done:]], dim=-1)


class ImplicitFilter(nn.Module):
    """BaseConv's long filter: an MLP of the position, k_i = W₂ relu(W₁ (t, cos ωi, −sin ωi))."""

    def __init__(self, d_model: int, max_len: int, d_hidden: int = 16) -> None:
        super().__init__()
        self.register_buffer("features", position_features(max_len), persistent=False)
        self.mlp = nn.Sequential(nn.Linear(3, d_hidden), nn.ReLU(), nn.Linear(d_hidden, d_model))

    def forward(self, time: int) -> Float[Tensor, "time d_model"]:
        assert isinstance(self.features, Tensor)
        return self.mlp(self.features[:time])


class MLP(nn.Module):
    """The state mixer of a block: W₂ gelu(W₁ x), or W₂ gelu(conv(W₁ x)) with `taps`."""

    def __init__(self, d_model: int, expand: int = 4, taps: int = 0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(d_model, expand * d_model)
        self.fc2 = nn.Linear(expand * d_model, d_model)
        self.sconv_D = ResidualConv(expand * d_model, taps) if taps else None

    def forward(self, x: Stream) -> Stream:
        if self.sconv_D is not None:
            return self.fc2(F.gelu(self.sconv_D(self.fc1(x))))
        return mlp(x, self.fc1.weight, self.fc1.bias, self.fc2.weight, self.fc2.bias)


class RMSNorm(nn.RMSNorm):
    """torch's RMSNorm, computed by our kernel."""

    def forward(self, x: Channels) -> Channels:
        return rms_norm(x, self.weight, self.eps or 0.0)


def l2_normalise(x: Channels, scale: float = 1.0) -> Channels:
    """Return x / |x|, times `scale`."""
    channels = x.shape[-1]
    return rms_norm(x, x.new_full((channels,), scale * channels**-0.5), 1e-6 / channels)


def draw_step_bias(count: int) -> Channels:
    """Draw b so that softplus(b) is log-uniform in [0.001, 0.1], as Mamba's step sizes start."""
    log_dt = torch.empty(count).uniform_(math.log(0.001), math.log(0.1))
    dt = log_dt.exp().clamp(min=1e-4)
    return dt + torch.log(-torch.expm1(-dt))


def split_heads(x: Stream, heads: int) -> Float[Tensor, "batch time head d_head"]:
    return x.view(*x.shape[:-1], heads, -1)
