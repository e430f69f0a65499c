"""The options of the mixers around the linear recurrence."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from mecheval.core.options import Constraints, Field
from mecheval.models.mixer_options import SEPARATE, Heads, MixerOptions, Taps

ExpandKeys = Annotated[
    float, Field(gt=0, le=16, description="width of all keys, as a multiple of d_model")
]
ExpandValues = Annotated[
    float, Field(gt=0, le=16, description="width of all values, as a multiple of d_model")
]

Decay = Annotated[
    Literal["none", "constant", "head", "channel"],
    Field(description="what decides how fast it decays; constant: as in RetNet"),
]


def expansions_divide(heads: int, d_model: int, expand_k: float, expand_v: float) -> str | None:
    for name, expand in (("expand_k", expand_k), ("expand_v", expand_v)):
        width = expand * d_model
        if width % heads:
            rule = f"{name}={expand:g} times d_model={d_model} must be a multiple of heads={heads}"
            return f"{rule}; it is {width:g}"
    return None


def strength_needs_beta(beta: bool, neg_eigval: bool) -> str | None:
    problem = "neg_eigval=true doubles β, which beta=false switches off; leave one of them out"
    return problem if neg_eigval and not beta else None


def no_normaliser_with_delta(normaliser: bool, delta: bool) -> str | None:
    problem = "normaliser=true needs weights that are positive; delta=true makes negative ones"
    return f"{problem}: use delta=false" if normaliser and delta else None


@dataclass(eq=False, repr=False, kw_only=True)
class ExpandedOptions(MixerOptions):
    """Heads whose keys and values have widths of their own."""

    heads: Heads = 1
    expand_k: ExpandKeys = 1.0
    expand_v: ExpandValues = 1.0
    constraints: ClassVar[Constraints] = (expansions_divide,)

    @property
    def d_key(self) -> int:
        """The width of the keys of all heads."""
        return int(self.expand_k * self.d_model)

    @property
    def d_value(self) -> int:
        """The width of the values of all heads."""
        return int(self.expand_v * self.d_model)


@dataclass(eq=False, repr=False, kw_only=True)
class GatedDeltaNetOptions(ExpandedOptions):
    """A memory that decays and is written by the delta rule; every part can be switched off."""

    expand_k: ExpandKeys = 0.75
    expand_v: ExpandValues = 1.5
    d_conv: Taps = 4
    decay: Decay = "head"
    delta: Annotated[bool, Field(description="a write replaces the old value of its key")] = True
    beta: Annotated[bool, Field(description="a write has a strength, β")] = True
    gate: Annotated[bool, Field(description="the output is gated")] = True
    norm: Annotated[bool, Field(description="the output of each head is normalised")] = True
    normaliser: Annotated[
        bool,
        Field(description="what is read is divided by the sum of its weights, as in attention"),
    ] = False
    householders: Annotated[int, Field(ge=1, le=8, description="writes of each token")] = 1
    neg_eigval: Annotated[bool, Field(description="β up to 2: a write may turn a value over")] = (
        False
    )
    constraints: ClassVar[Constraints] = (
        expansions_divide,
        strength_needs_beta,
        no_normaliser_with_delta,
    )
    projections = SEPARATE


@dataclass(eq=False, repr=False, kw_only=True)
class KDAOptions(GatedDeltaNetOptions):
    """A memory whose rows decay one by one and that is written by the delta rule."""

    expand_k: ExpandKeys = 1.0
    expand_v: ExpandValues = 1.0
    decay: Decay = "channel"
