"""The options of each mixer: the base class of the mixer itself, which inherits this constructor.

They are apart from the mixers because listing or refusing an option must not import torch.
"""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from mecheval.core.errors import InvalidInput
from mecheval.core.options import Constraints, Field, broken_constraints

Heads = Annotated[int, Field(ge=1, description="heads")]
Taps = Annotated[int, Field(ge=0, le=16, description="taps of the short convolutions; 0: none")]
Features = Annotated[int, Field(ge=1, le=256, description="width of queries and keys in each head")]
Skip = Annotated[
    bool,
    Field(description="a trained multiple of its input added to the convolution"),
]
SSMState = Annotated[int, Field(ge=2, le=2**16, multiple_of=2, description="state of each SSM")]
ScanBackend = Annotated[
    Literal["auto", "torch", "numba", "mamba_ssm"],
    Field(description="who computes the scan; auto: the fastest here"),
]
DeltaBackend = Annotated[
    Literal["auto", "torch", "fla"],
    Field(description="who computes the delta rule; auto: the fastest here"),
]


Projections = Mapping[str, tuple[str, int, int]]  # a layer, and which of how many equal parts
SEPARATE: Projections = {which: (f"{which}_proj", 0, 1) for which in "qkv"}


def _parts_of(layer: str, order: str) -> Projections:
    """Return the projections of a layer that computes several in this order."""
    return {which: (layer, part, len(order)) for part, which in enumerate(order)}


def heads_divide(heads: int, d_model: int) -> str | None:
    return f"heads={heads} must divide d_model={d_model}" if d_model % heads else None


def head_dim_divides(head_dim: int, d_model: int) -> str | None:
    return f"head_dim={head_dim} must divide d_model={d_model}" if d_model % head_dim else None


def backend_is_installed(backend: str) -> str | None:
    if backend not in ("mamba_ssm", "fla") or importlib.util.find_spec(backend) is not None:
        return None
    return f"backend={backend} needs the package {backend}, which is not installed; use auto"


def refuse(problem: str | None) -> None:
    """Raise InvalidInput if a constraint returned a problem."""
    if problem:
        raise InvalidInput(problem)


@dataclass(eq=False, repr=False)
class MixerOptions:
    """The arguments of every mixer; a subclass adds its options as keywords."""

    d_model: int
    max_len: int
    constraints: ClassVar[Constraints] = ()
    start: ClassVar[Literal["normal", "own"]] = "normal"  # who draws the linear weights
    projections: ClassVar[Projections] = {}  # where queries, keys and values come from

    def __post_init__(self) -> None:
        """Refuse options that do not fit together; a mixer then builds its layers."""
        super().__init__()  # nn.Module's, of which a mixer inherits next
        if problems := broken_constraints(self.constraints, vars(self)):
            raise InvalidInput(problems)


@dataclass(eq=False, repr=False, kw_only=True)
class AttentionOptions(MixerOptions):
    """Causal softmax attention."""

    heads: Heads = 1
    constraints: ClassVar[Constraints] = (heads_divide,)
    projections = _parts_of("qkv_proj", "qkv")


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
    projections = _parts_of("in_proj", "kqv")


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
