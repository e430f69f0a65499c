"""The options of Mamba-2 and Mamba-3."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from mecheval.core.options import Constraints, Field
from mecheval.models.mixer_options import MixerOptions, Projections, Taps

HEAD_DIM = 32  # and less where it does not divide the width


def fitting(head_dim: int, d_inner: int) -> int:
    """Return the channels in a head: as given, at the default the largest divisor up to it."""
    if head_dim != HEAD_DIM:
        return head_dim
    return max(n for n in range(1, HEAD_DIM + 1) if d_inner % n == 0)


def head_dim_divides(head_dim: int, expand: int, d_model: int) -> str | None:
    d_inner = expand * d_model
    if d_inner % fitting(head_dim, d_inner) == 0:
        return None
    rule = f"head_dim={head_dim} must divide expand·d_model={d_inner}"
    return f"{rule}; use {max(n for n in range(1, head_dim) if d_inner % n == 0)}"


def groups_divide(groups: int, head_dim: int, expand: int, d_model: int) -> str | None:
    heads = expand * d_model // fitting(head_dim, expand * d_model)
    if heads % groups == 0:
        return None
    return f"groups={groups} must divide the heads, expand·d_model/head_dim={heads}; use groups=1"


def rotary_has_a_pair(rotary: float, d_state: int) -> str | None:
    if not rotary or int(rotary * d_state) >= 2:
        return None
    rule = f"rotary={rotary:g} of d_state={d_state} is less than the two channels of an angle"
    return f"{rule}; use more, or rotary=0"


@dataclass(eq=False, repr=False, kw_only=True)
class StateSpaceOptions(MixerOptions):
    """Heads whose keys and queries, B and C, are shared by the heads of a group."""

    d_state: Annotated[int, Field(ge=1, le=1024, description="width of B and C")] = 64
    expand: Annotated[int, Field(ge=1, le=16, description="channels, as a multiple of d_model")] = 2
    head_dim: Annotated[
        int,
        Field(ge=1, le=1024, description="channels in a head; the default is less where it must"),
    ] = HEAD_DIM
    groups: Annotated[int, Field(ge=1, description="groups of heads that share B and C")] = 1
    gate: Annotated[bool, Field(description="the output is gated")] = True
    skip: Annotated[bool, Field(description="a multiple D of each value is added where it is")] = (
        True
    )
    constraints: ClassVar[Constraints] = (head_dim_divides, groups_divide)
    start = "own"
    projections: ClassVar[Projections] = {
        which: (f"{name}_proj", 0, 1) for which, name in zip("qkv", "CBx", strict=True)
    }

    def __post_init__(self) -> None:
        self.head_dim = fitting(self.head_dim, self.d_inner)
        super().__post_init__()

    @property
    def d_inner(self) -> int:
        """The width of the values of all heads."""
        return self.expand * self.d_model

    @property
    def heads(self) -> int:
        return self.d_inner // self.head_dim


@dataclass(eq=False, repr=False, kw_only=True)
class Mamba2Options(StateSpaceOptions):
    """A state space model whose heads decay as a whole, behind a short convolution."""

    d_conv: Taps = 4
    decay: Annotated[bool, Field(description="the memory decays")] = True
    norm: Annotated[bool, Field(description="the gated output is normalised")] = True


@dataclass(eq=False, repr=False, kw_only=True)
class Mamba3Options(StateSpaceOptions):
    """A state space model that writes two tokens at a time and rotates keys and queries."""

    d_conv: Taps = 0
    decay: Annotated[
        Literal["none", "softplus", "heavy_tail"],
        Field(description="what decides how fast the memory decays; heavy_tail: the newer code's"),
    ] = "softplus"
    trapezoid: Annotated[
        bool, Field(description="each token also writes the key and value of the one before it")
    ] = True
    rotary: Annotated[
        float, Field(ge=0, le=1, description="share of B and C that is rotated; 0: none")
    ] = 0.5
    bias: Annotated[bool, Field(description="B and C have a bias by head")] = True
    bc_norm: Annotated[bool, Field(description="B and C are normalised")] = True
    norm: Annotated[bool, Field(description="the output of each head is normalised")] = False
    constraints: ClassVar[Constraints] = (*StateSpaceOptions.constraints, rotary_has_a_pair)

    @property
    def angles(self) -> int:
        return int(self.rotary * self.d_state) // 2
