"""The options of recurrent networks with gates: mLSTM and the RG-LRU."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from mecheval.core.options import Constraints, Field
from mecheval.models.mixer_options import SEPARATE, MixerOptions, Taps
from mecheval.models.mixer_options.recurrent import (
    ExpandedOptions,
    ExpandKeys,
    expansions_divide,
)

Gated = Annotated[bool, Field(description="the output is gated")]


def norm_needs_values(heads: int, d_model: int, expand_v: float, norm: bool) -> str | None:
    if not norm or expand_v * d_model >= 2 * heads:
        return None
    problem = f"norm=true of heads={heads} leaves nothing of one value in each"
    return f"{problem}: use fewer heads, a larger expand_v, or norm=false"


def bias_needs_input_gate(input_bias: float, input_gate: str) -> str | None:
    if input_bias == MLSTMOptions.input_bias or input_gate != "none":
        return None
    return f"input_bias={input_bias:g} needs an input gate; input_gate=none switches it off"


@dataclass(eq=False, repr=False, kw_only=True)
class MLSTMOptions(ExpandedOptions):
    """A memory of keys and values behind exponential gates; every part can be switched off."""

    expand_k: ExpandKeys = 0.5
    d_conv: Annotated[
        int, Field(ge=0, le=16, description="taps of a convolution before q and k; 0: none")
    ] = 0
    input_gate: Annotated[
        Literal["exponential", "sigmoid", "none"],
        Field(description="how much of each token is written"),
    ] = "exponential"
    decay: Annotated[
        Literal["head", "constant", "none"],
        Field(description="the forget gate of each head; constant: its bias alone"),
    ] = "head"
    soft_cap: Annotated[
        float, Field(gt=0, le=50, description="bound of the gates before their activations")
    ] = 15.0
    input_bias: Annotated[
        float, Field(ge=-50, le=50, description="bias of the input gate before training")
    ] = -10.0
    normaliser: Annotated[
        bool, Field(description="what is read is divided by the sum of its weights, if above 1")
    ] = True
    gate: Gated = True
    norm: Annotated[bool, Field(description="the output of each head is normalised")] = True
    constraints: ClassVar[Constraints] = (
        expansions_divide,
        norm_needs_values,
        bias_needs_input_gate,
    )
    projections = SEPARATE


def blocks_divide(heads: int, d_model: int, expand: float) -> str | None:
    width = expand * d_model
    if width % heads == 0 and width >= 1:
        return None
    rule = f"expand={expand:g} times d_model={d_model} must be a multiple of heads={heads}"
    return f"{rule}; it is {width:g}"


@dataclass(eq=False, repr=False, kw_only=True)
class RGLRUOptions(MixerOptions):
    """Griffin's recurrent block: a vector that decays by gates of its own, and no keys."""

    heads: Annotated[int, Field(ge=1, description="blocks of the gates' weights")] = 1
    expand: Annotated[
        float, Field(gt=0, le=16, description="channels, as a multiple of d_model")
    ] = 1.0
    d_conv: Taps = 4
    decay: Annotated[
        Literal["gated", "constant", "none"],
        Field(description="what decides how fast a channel decays; constant: Λ alone"),
    ] = "gated"
    input_gate: Annotated[bool, Field(description="what is written is gated")] = True
    gate: Gated = True
    constraints: ClassVar[Constraints] = (blocks_divide,)

    @property
    def d_rnn(self) -> int:
        """The width of the recurrence."""
        return int(self.expand * self.d_model)
