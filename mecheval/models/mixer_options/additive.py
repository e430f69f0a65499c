"""The options of mixers whose memory decays and adds: GLA, RetNet and HGRN2."""

from dataclasses import dataclass
from typing import Annotated, Literal

from mecheval.core.options import Field
from mecheval.models.mixer_options import (
    SEPARATE,
    Heads,
    MixerOptions,
    Projections,
    Taps,
    heads_divide,
)
from mecheval.models.mixer_options.recurrent import (
    ExpandedOptions,
    ExpandKeys,
    ExpandValues,
    expansions_divide,
)

Norm = Annotated[bool, Field(description="what is read is normalised")]
RANK, TAU = 16, 16.0
FORGETS: Projections = {**SEPARATE, "k": ("f_proj", 0, 1), "v": ("i_proj", 0, 1)}


def decay_is_learned(decay: str, decay_rank: int, tau: float) -> str | None:
    if decay in ("channel", "head"):
        return None
    for name, value, default in (("decay_rank", decay_rank, RANK), ("tau", tau, TAU)):
        if value != default:
            problem = f"{name}={value:g} needs a decay that is learned; decay={decay} is not"
            return f"{problem}: leave {name} out or use decay=channel"
    return None


def pairs_turn(heads: int, d_model: int, expand_k: float, rotary: bool) -> str | None:
    channels = expand_k * d_model / heads
    if not rotary or channels % 2 != 1:
        return None
    problem = f"rotary=true turns pairs of channels; the keys of a head have {channels:g}"
    return f"{problem}: change expand_k={expand_k:g} or heads={heads}, or use rotary=false"


@dataclass(eq=False, repr=False, kw_only=True)
class AdditiveOptions(ExpandedOptions):
    """The options that GLA and RetNet share."""

    d_conv: Taps = 0
    gate: Annotated[bool, Field(description="the output is gated")] = True
    norm: Norm = True
    projections = SEPARATE


@dataclass(eq=False, repr=False, kw_only=True)
class GLAOptions(AdditiveOptions):
    """Linear attention whose memory decays, by channel and token."""

    expand_k: ExpandKeys = 0.5
    decay: Annotated[
        Literal["none", "constant", "head", "channel"],
        Field(description="what decides how fast it decays; constant: as in RetNet"),
    ] = "channel"
    decay_rank: Annotated[int, Field(ge=1, le=1024, description="rank of the decay's weights")] = (
        RANK
    )
    tau: Annotated[float, Field(gt=0, description="the decay is a sigmoid to the power 1/tau")] = (
        TAU
    )
    constraints = (expansions_divide, decay_is_learned)


@dataclass(eq=False, repr=False, kw_only=True)
class RetNetOptions(AdditiveOptions):
    """Retention: a memory that decays at a fixed rate, and rotary positions."""

    expand_v: ExpandValues = 2.0
    decay: Annotated[bool, Field(description="the memory of head h keeps 1 − 2^(−5−h)")] = True
    rotary: Annotated[bool, Field(description="queries and keys turn with their position")] = True
    constraints = (expansions_divide, pairs_turn)


@dataclass(eq=False, repr=False, kw_only=True)
class HGRN2Options(MixerOptions):
    """A gated linear RNN whose keys are what its memory forgets."""

    heads: Heads = 1
    d_conv: Taps = 0
    decay: Annotated[bool, Field(description="the memory decays by the forget gate")] = True
    lower_bound: Annotated[
        float, Field(ge=0, lt=1, description="the least that the forget gate keeps")
    ] = 0.0
    norm: Norm = True
    constraints = (heads_divide,)
    projections = FORGETS
