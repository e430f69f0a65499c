"""Small layers that several mixers share."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from mecheval.models.ops.filters import position_features
from mecheval.models.ops.rms_norm import rms_norm
from mecheval.models.ops.short_conv import short_conv, short_conv_silu

Reads = Int[Tensor, "batch reads"]  # positions of each row that are read


class ShortConv(nn.Conv1d):
    """A causal depthwise convolution of a stream; parameters and their start are those of `nn.Conv1d`."""

    def __init__(self, channels: int, width: int, bias: bool = True) -> None:
        super().__init__(channels, channels, width, groups=channels, bias=bias)

    def forward(self, x: Float[Tensor, "batch time channel"]) -> Float[Tensor, "batch time channel"]:
        return short_conv(x, self.weight[:, 0], self.bias)


class ShortConvSilu(ShortConv):
    """… and silu of it."""

    def forward(self, x: Float[Tensor, "batch time channel"]) -> Float[Tensor, "batch time channel"]:
        return short_conv_silu(x, self.weight[:, 0], self.bias)


class ImplicitFilter(nn.Module):
    """BaseConv's long filter: an MLP of the position, k_i = W₂ relu(W₁ (t, cos ωi, −sin ωi))."""

    def __init__(self, d_model: int, max_len: int, d_hidden: int = 16) -> None:
        super().__init__()
        self.register_buffer("features", position_features(max_len), persistent=False)
        self.mlp = nn.Sequential(nn.Linear(3, d_hidden), nn.ReLU(), nn.Linear(d_hidden, d_model))

    def forward(self, time: int) -> Float[Tensor, "time d_model"]:
        assert isinstance(self.features, Tensor)
        return self.mlp(self.features[:time])


def gathered(x: Float[Tensor, "batch time channel"], at: Reads) -> Float[Tensor, "batch reads channel"]:
    return x.gather(1, at[:, :, None].expand(-1, -1, x.shape[2]))


def split_heads(x: Float[Tensor, "batch time channel"], heads: int) -> Float[Tensor, "batch time head d_head"]:
    return x.view(*x.shape[:-1], heads, -1)


class RMSNorm(nn.RMSNorm):
    def forward(self, x: Float[Tensor, "... channel"]) -> Float[Tensor, "... channel"]:
        return rms_norm(x, self.weight, self.eps or 0.0)


def l2_normalised(x: Float[Tensor, "... channel"], scale: float = 1.0) -> Float[Tensor, "... channel"]:
    """x / |x|, times `scale`."""
    channels = x.shape[-1]
    return rms_norm(x, x.new_full((channels,), scale * channels**-0.5), 1e-6 / channels)
