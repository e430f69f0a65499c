"""The mixers' options, without torch: listing a mixer or refusing an option must be instant.

A class here says what the constructor of its mixer says; a test holds the two together.
"""

import importlib.util
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from mecheval.core.errors import InvalidInput

Heads = Annotated[int, Field(ge=1, description="heads")]
HeadDim = Annotated[int, Field(ge=1, description="channels in a head")]
Kernel = Annotated[
    Annotated[int, Field(ge=1, le=64)] | Literal["long"],
    Field(description="taps of the convolution, or long for an implicit one"),
]
FeatureDim = Annotated[int, Field(ge=1, le=256, description="width of queries and keys in each head")]
ShortTaps = Annotated[int, Field(ge=1, le=64, description="taps of the short convolution")]
MaybeTaps = Annotated[int, Field(ge=0, le=16, description="taps of the short convolutions; 0: none")]
FilterOrder = Annotated[int, Field(ge=1, le=4096, description="width of the filter's MLP")]
Skip = Annotated[bool, Field(description="a trained multiple of its input added to the convolution")]
SSMState = Annotated[int, Field(ge=2, le=2**16, multiple_of=2, description="state of each SSM")]
ChannelState = Annotated[int, Field(ge=1, le=1024, description="state of each channel")]
Expand = Annotated[int, Field(ge=1, le=16, description="channels, as a multiple of d_model")]
ScanBackend = Annotated[
    Literal["auto", "torch", "numba", "mamba_ssm"], Field(description="who computes the scan; auto: the fastest here")
]
DeltaBackend = Annotated[
    Literal["auto", "torch", "fla"], Field(description="who computes the delta rule; auto: the fastest here")
]


def heads_divide(heads: int, d_model: int) -> str | None:
    return f"heads={heads} must divide d_model={d_model}" if d_model % heads else None


def head_dim_divides(head_dim: int, d_model: int) -> str | None:
    return f"head_dim={head_dim} must divide d_model={d_model}" if d_model % head_dim else None


def backend_is_installed(backend: str) -> str | None:
    if backend not in ("mamba_ssm", "fla") or importlib.util.find_spec(backend) is not None:
        return None
    return f"backend={backend} needs the package {backend}, which is not installed; auto does without"


def refuse(complaint: str | None) -> None:
    if complaint:
        raise InvalidInput(complaint)


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Causal softmax attention."""

    heads: Heads = 1
    constraints: ClassVar = (heads_divide,)


@dataclass(frozen=True, kw_only=True)
class BaseConv:
    """A gated convolution, short or implicitly long."""

    kernel: Kernel = 3


@dataclass(frozen=True, kw_only=True)
class DeltaNet:
    """A recurrent memory written by the delta rule."""

    heads: Heads = 1
    d_conv: MaybeTaps = 4
    backend: DeltaBackend = "auto"
    constraints: ClassVar = (heads_divide, backend_is_installed)


@dataclass(frozen=True, kw_only=True)
class H3:
    """Two state space models with multiplications between them."""

    d_state: SSMState = 1024
    head_dim: HeadDim = 2
    constraints: ClassVar = (head_dim_divides,)


@dataclass(frozen=True, kw_only=True)
class Hyena:
    """Gated implicit long convolution."""

    filter_order: FilterOrder = 64
    short: ShortTaps = 3
    skip: Skip = False


@dataclass(frozen=True, kw_only=True)
class LinearAttention:
    """Normalised linear attention with the 2nd-order Taylor feature map."""

    feature_dim: FeatureDim = 8
    heads: Heads = 1
    constraints: ClassVar = (heads_divide,)


@dataclass(frozen=True, kw_only=True)
class Mamba:
    """A selective state space model behind a short convolution."""

    d_state: ChannelState = 16
    expand: Expand = 2
    d_conv: MaybeTaps = 4
    backend: ScanBackend = "auto"
    constraints: ClassVar = (backend_is_installed,)
