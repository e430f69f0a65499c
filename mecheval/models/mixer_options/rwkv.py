"""The options of RWKV's mixers."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from mecheval.core.options import Constraints, Field
from mecheval.models.mixer_options import SEPARATE, Heads, MixerOptions, Projections, heads_divide


@dataclass(eq=False, repr=False, kw_only=True)
class RWKV7Options(MixerOptions):
    """A memory that decays and is rewritten by a general delta rule, behind token shifts."""

    heads: Heads = 1
    shift: Annotated[
        bool, Field(description="every projection sees a mixture of this token and the last one")
    ] = True
    decay: Annotated[
        Literal["none", "head", "channel"], Field(description="what decides how fast it decays")
    ] = "channel"
    delta: Annotated[bool, Field(description="a write erases the old value of its key")] = True
    rate: Annotated[
        bool, Field(description="a rate for each channel decides how much is erased and written")
    ] = True
    bonus: Annotated[bool, Field(description="the token's own value is added to the output")] = True
    gate: Annotated[bool, Field(description="the output is gated")] = True
    norm: Annotated[bool, Field(description="the output of each head is normalised")] = True
    constraints: ClassVar[Constraints] = (heads_divide,)
    projections: ClassVar[Projections] = {**SEPARATE, "q": ("r_proj", 0, 1)}
