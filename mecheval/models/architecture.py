"""What a user names: a pattern of mixers, tiled over the layers, and the block around them (paper §4.1, appendix A).

An ablation is an option of one of these functions, never a class of its own.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from mecheval.core.spec import Spec
from mecheval.models.mixer_options import (
    ChannelState,
    DeltaBackend,
    Expand,
    FeatureDim,
    FilterOrder,
    HeadDim,
    Heads,
    Kernel,
    MaybeTaps,
    ScanBackend,
    ShortTaps,
    Skip,
    SSMState,
)

Positions = Annotated[bool, Field(description="learned absolute positions added to the embedding")]


@dataclass(frozen=True)
class Architecture:
    """`start` says who draws the linear weights: the backbone (normal) or the mixers themselves (own). `whole` is a
    stranger's model in place of the backbone and all its mixers."""

    pattern: tuple[Spec, ...]
    positions: bool = False
    mlp: bool = True
    norm: Literal["layer", "rms"] = "layer"
    start: Literal["normal", "own"] = "normal"
    whole: Spec | None = None

    def mixer(self, layer: int) -> Spec:
        return self.pattern[layer % len(self.pattern)]


def attention(*, heads: Heads = 1, positions: Positions = True) -> Architecture:
    """A Transformer: softmax attention and MLP."""
    return Architecture((Spec("attention", {"heads": heads}),), positions=positions)


def base_conv(
    *,
    kernel: Kernel = 3,
    positions: Positions = False,
) -> Architecture:
    """BaseConv: gated convolutions, short and implicitly long by turns."""
    return Architecture(
        (Spec("base_conv", {"kernel": kernel}), Spec("base_conv", {"kernel": "long"})), positions=positions
    )


def based(
    *,
    kernel: Kernel = 3,
    feature_dim: FeatureDim = 8,
    heads: Heads = 1,
    positions: Positions = False,
) -> Architecture:
    """Based: short convolution and linear attention by turns."""
    linear = Spec("linear_attention", {"feature_dim": feature_dim, "heads": heads})
    return Architecture((Spec("base_conv", {"kernel": kernel}), linear), positions=positions)


def delta_net(
    *,
    heads: Heads = 1,
    d_conv: MaybeTaps = 4,
    backend: DeltaBackend = "auto",
    positions: Positions = False,
) -> Architecture:
    """DeltaNet: a memory written by the delta rule."""
    options = {"heads": heads, "d_conv": d_conv, "backend": backend}
    return Architecture((Spec("delta_net", options),), positions=positions)


def h3(
    *,
    d_state: SSMState = 1024,
    head_dim: HeadDim = 2,
    positions: Positions = False,
) -> Architecture:
    """H3: a shift SSM and a diagonal SSM with multiplications between them."""
    return Architecture((Spec("h3", {"d_state": d_state, "head_dim": head_dim}),), positions=positions)


def hyena(
    *,
    filter_order: FilterOrder = 64,
    short: ShortTaps = 3,
    skip: Skip = False,
    positions: Positions = False,
) -> Architecture:
    """Hyena: gates around an implicit long convolution."""
    return Architecture(
        (Spec("hyena", {"filter_order": filter_order, "short": short, "skip": skip}),), positions=positions
    )


def mamba(
    *,
    d_state: ChannelState = 16,
    expand: Expand = 2,
    d_conv: MaybeTaps = 4,
    backend: ScanBackend = "auto",
    positions: Positions = False,
) -> Architecture:
    """Mamba: selective state space models behind short convolutions, without MLPs."""
    options = {"d_state": d_state, "expand": expand, "d_conv": d_conv, "backend": backend}
    return Architecture((Spec("mamba", options),), positions=positions, mlp=False, norm="rms", start="own")
