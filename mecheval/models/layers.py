"""Small layers that several mixers share."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mecheval.models.ops.filters import position_features
from mecheval.models.ops.reads import Reads, gathered
from mecheval.models.ops.rms_norm import rms_norm
from mecheval.models.ops.short_conv import short_conv, short_conv_silu

Stream = Float[Tensor, "batch time channel"]
Projection = Callable[[Tensor], Tensor]  # of each position by itself


def _as_it_is(x: Tensor) -> Tensor:
    return x


class ShortConv(nn.Conv1d):
    """A causal depthwise convolution of a stream; parameters and their start are those of `nn.Conv1d`."""

    def __init__(self, channels: int, width: int, bias: bool = True) -> None:
        super().__init__(channels, channels, width, groups=channels, bias=bias)

    def forward(self, x: Stream) -> Stream:
        return short_conv(x, self.weight[:, 0], self.bias)

    def read(self, x: Stream, at: Reads, projected: Projection = _as_it_is) -> Float[Tensor, "batch reads projected"]:
        """The output at some positions, of a stream that is `projected` nowhere else."""
        places = at[..., None] + torch.arange(1 - self.kernel_size[0], 1, device=at.device)
        taken = projected(gathered(x, places.clamp(min=0).flatten(start_dim=1))).view(*places.shape, -1)
        y = torch.einsum("brwc,cw->brc", taken * (places >= 0)[..., None], self.weight[:, 0])
        return y if self.bias is None else y + self.bias


class ShortConvSilu(ShortConv):
    """… and silu of it."""

    def forward(self, x: Stream) -> Stream:
        return short_conv_silu(x, self.weight[:, 0], self.bias)

    def read(self, x: Stream, at: Reads, projected: Projection = _as_it_is) -> Float[Tensor, "batch reads projected"]:
        return F.silu(super().read(x, at, projected))


class Silu(nn.SiLU):
    """… without a convolution."""

    def read(self, x: Stream, at: Reads, projected: Projection = _as_it_is) -> Float[Tensor, "batch reads projected"]:
        return F.silu(projected(gathered(x, at)))


class ImplicitFilter(nn.Module):
    """BaseConv's long filter: an MLP of the position, k_i = W₂ relu(W₁ (t, cos ωi, −sin ωi))."""

    def __init__(self, d_model: int, max_len: int, d_hidden: int = 16) -> None:
        super().__init__()
        self.register_buffer("features", position_features(max_len), persistent=False)
        self.mlp = nn.Sequential(nn.Linear(3, d_hidden), nn.ReLU(), nn.Linear(d_hidden, d_model))

    def forward(self, time: int) -> Float[Tensor, "time d_model"]:
        assert isinstance(self.features, Tensor)
        return self.mlp(self.features[:time])


def split_heads(x: Stream, heads: int) -> Float[Tensor, "batch time head d_head"]:
    return x.view(*x.shape[:-1], heads, -1)


class RMSNorm(nn.RMSNorm):
    def forward(self, x: Float[Tensor, "... channel"]) -> Float[Tensor, "... channel"]:
        return rms_norm(x, self.weight, self.eps or 0.0)


def l2_normalised(x: Float[Tensor, "... channel"], scale: float = 1.0) -> Float[Tensor, "... channel"]:
    """x / |x|, times `scale`."""
    channels = x.shape[-1]
    return rms_norm(x, x.new_full((channels,), scale * channels**-0.5), 1e-6 / channels)
