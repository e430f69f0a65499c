"""The options of `hf-config:FAMILY`, apart from the model: refusing one must not import torch."""

import importlib.util
from dataclasses import dataclass
from typing import Annotated, ClassVar

from mecheval.core.options import Constraints, Field
from mecheval.models.hf.families import NAMES, unknown_family

INSTALL = "install it with: pip install 'mecheval[hf]'"
D_HEAD = 16  # width of a head where the number of heads is left open
HYBRIDS = {"gemma3", "recurrent_gemma", "jamba", "zamba2", "bamba", "nemotron_h", "qwen3_next"}
HYBRIDS |= {"kimi_linear", "olmo_hybrid", "minimax", "lfm2"}
Count = Annotated[int, Field(ge=0, le=1024)]


def family_is_known(family: str) -> str | None:
    return None if family in NAMES else unknown_family(family)


def transformers_is_installed(family: str) -> str | None:
    if importlib.util.find_spec("transformers") is None:
        return f"transformers, which has {family}, is not installed; {INSTALL}"
    return None


def width_is_even(d_model: int) -> str | None:
    return f"hidden={d_model} must be a multiple of 4" if d_model % 4 else None


def heads_fit(d_model: int, heads: int, kv_heads: int) -> str | None:
    if heads and d_model % (2 * heads):
        return f"heads={heads} must divide hidden={d_model} into heads of an even width"
    if kv_heads and usual_heads(d_model, heads) % kv_heads:
        return f"kv_heads={kv_heads} must divide heads={usual_heads(d_model, heads)}"
    return None


def has_every_kind(family: str, layers: int, attention_every: int) -> str | None:
    if family not in HYBRIDS or layers >= attention_every:
        return None
    rule = f"layers={layers} must be at least attention_every={attention_every}"
    return f"{rule}: {family} would have no full attention"


def usual_heads(d_model: int, heads: int) -> int:
    """Return the number of heads: as asked, or one for every 16 channels if that divides."""
    fitting = [n for n in range(1, d_model // D_HEAD + 1) if d_model % (2 * n) == 0]
    return heads or max(fitting, default=1)


@dataclass(frozen=True, kw_only=True)
class SmallOptions:
    """A random small model of transformers, by its family: hf-config:llama,hidden=64,layers=4."""

    vocab_size: int
    d_model: int
    layers: int
    max_len: int
    family: Annotated[str, Field(description=f"one of {', '.join(NAMES)}")]
    heads: Annotated[Count, Field(description="heads; 0: one for every 16 channels")] = 0
    kv_heads: Annotated[Count, Field(description="heads of keys and values; 0: as many")] = 0
    state: Annotated[
        int, Field(ge=1, le=1024, description="size of the state of each channel of an SSM")
    ] = 16
    experts: Annotated[
        int, Field(ge=2, le=64, description="experts, where the family has them")
    ] = 4
    attention_every: Annotated[
        int, Field(ge=1, le=64, description="one of so many layers of a hybrid has full attention")
    ] = 2
    constraints: ClassVar[Constraints] = (
        family_is_known,
        transformers_is_installed,
        width_is_even,
        heads_fit,
        has_every_kind,
    )

    @property
    def n_heads(self) -> int:
        return usual_heads(self.d_model, self.heads)

    @property
    def n_kv_heads(self) -> int:
        return self.kv_heads or self.n_heads

    @property
    def d_head(self) -> int:
        return self.d_model // self.n_heads

    def pattern(self, other: str, attention: str = "full_attention") -> list[str]:
        """Return the kind of each layer of a hybrid."""
        every = self.attention_every
        return [other if (layer + 1) % every else attention for layer in range(self.layers)]
