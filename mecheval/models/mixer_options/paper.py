"""The options of the paper's mixers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from mecheval.core.options import Constraints, Field
from mecheval.models.mixer_options import (
    SEPARATE,
    DeltaBackend,
    Heads,
    MixerOptions,
    ScanBackend,
    Taps,
    backend_is_installed,
    heads_divide,
    parts_of,
)

Features = Annotated[int, Field(ge=1, le=256, description="width of queries and keys in each head")]
Skip = Annotated[
    bool,
    Field(description="a trained multiple of its input added to the convolution"),
]
SSMState = Annotated[int, Field(ge=2, le=2**16, multiple_of=2, description="state of each SSM")]
ROTARY_BASE = 10000.0


def head_dim_divides(head_dim: int, d_model: int) -> str | None:
    return f"head_dim={head_dim} must divide d_model={d_model}" if d_model % head_dim else None


def kv_heads_divide(kv_heads: int, heads: int) -> str | None:
    if not kv_heads or heads % kv_heads == 0:
        return None
    return f"kv_heads={kv_heads} must divide heads={heads}; 0 gives every head its own"


def rotary_has_pairs(rotary: bool, heads: int, d_model: int) -> str | None:
    width, rest = divmod(d_model, heads)
    if not rotary or rest or width % 2 == 0:
        return None
    of = f"heads={heads} of d_model={d_model} have {width} each"
    return f"rotary=true needs heads with an even number of channels; {of}"


def rotary_base_is_used(rotary: bool, rotary_base: float) -> str | None:
    if rotary or rotary_base == ROTARY_BASE:
        return None
    return f"rotary_base={rotary_base:g} needs rotary positions; give rotary=true as well"


@dataclass(eq=False, repr=False, kw_only=True)
class AttentionOptions(MixerOptions):
    """Causal softmax attention."""

    heads: Heads = 1
    kv_heads: Annotated[
        int, Field(ge=0, description="heads of keys and values, shared by groups; 0: heads")
    ] = 0
    window: Annotated[
        int, Field(ge=0, description="last tokens that a token sees, itself included; 0: all")
    ] = 0
    rotary: Annotated[bool, Field(description="rotary positions on queries and keys")] = False
    rotary_base: Annotated[
        float, Field(gt=1, le=1e9, description="base of the angles' wavelengths")
    ] = ROTARY_BASE
    qk_norm: Annotated[bool, Field(description="RMSNorm on the queries and keys of a head")] = False
    constraints: ClassVar[Constraints] = (
        heads_divide,
        kv_heads_divide,
        rotary_has_pairs,
        rotary_base_is_used,
    )
    projections = parts_of("qkv_proj", "qkv")

    @property
    def d_kv(self) -> int:
        """Width of the keys, and of the values, of all heads."""
        return self.d_model // self.heads * (self.kv_heads or self.heads)

    @property
    def part_widths(self) -> Mapping[str, Sequence[int]]:
        return {"qkv_proj": (self.d_model, self.d_kv, self.d_kv)}


@dataclass(eq=False, repr=False, kw_only=True)
class BaseConvOptions(MixerOptions):
    """A gated convolution, short or implicitly long."""

    kernel: Annotated[
        Annotated[int, Field(ge=1, le=64)] | Literal["long"],
        Field(description="taps of the convolution, or long for an implicit one"),
    ] = 3


@dataclass(eq=False, repr=False, kw_only=True)
class DeltaNetOptions(MixerOptions):
    """A recurrent memory written by the delta rule."""

    heads: Heads = 1
    d_conv: Taps = 4
    backend: DeltaBackend = "auto"
    constraints: ClassVar[Constraints] = (heads_divide, backend_is_installed)
    projections = SEPARATE


@dataclass(eq=False, repr=False, kw_only=True)
class H3Options(MixerOptions):
    """Two state space models with multiplications between them."""

    d_state: SSMState = 1024
    head_dim: Annotated[int, Field(ge=1, description="channels in a head")] = 2
    constraints: ClassVar[Constraints] = (head_dim_divides,)
    projections = SEPARATE


@dataclass(eq=False, repr=False, kw_only=True)
class HyenaOptions(MixerOptions):
    """Gated implicit long convolution."""

    filter_order: Annotated[int, Field(ge=1, le=4096, description="width of the filter's MLP")] = 64
    short: Annotated[int, Field(ge=1, le=64, description="taps of the short convolution")] = 3
    skip: Skip = False
    projections = parts_of("in_proj", "kqv")


@dataclass(eq=False, repr=False, kw_only=True)
class LinearAttentionOptions(MixerOptions):
    """Normalised linear attention with the 2nd-order Taylor feature map."""

    feature_dim: Features = 8
    heads: Heads = 1
    constraints: ClassVar[Constraints] = (heads_divide,)
    projections = SEPARATE


@dataclass(eq=False, repr=False, kw_only=True)
class MambaOptions(MixerOptions):
    """A selective state space model behind a short convolution."""

    d_state: Annotated[int, Field(ge=1, le=1024, description="state of each channel")] = 16
    expand: Annotated[int, Field(ge=1, le=16, description="channels, as a multiple of d_model")] = 2
    d_conv: Taps = 4
    backend: ScanBackend = "auto"
    constraints: ClassVar[Constraints] = (backend_is_installed,)
    start = "own"
