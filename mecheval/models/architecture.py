"""Architectures: a pattern of mixers, tiled over the layers, and the block around them.

They are the paper's (§4.1, appendix A). An ablation is an option, never a class of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from typing import Annotated, Any, Literal

from pydantic import Field

from mecheval.core.options import Option, options_of
from mecheval.core.spec import Spec
from mecheval.models.registries import mixers

Positions = Annotated[bool, Field(description="learned absolute positions added to the embedding")]


@dataclass(frozen=True)
class Architecture:
    """A pattern of mixers and the block around them.

    `start` says what draws the linear weights: the backbone (normal) or the mixers (own). `whole`
    is a third-party model in place of the backbone and all its mixers.
    """

    pattern: tuple[Spec, ...]
    positions: bool = False
    mlp: bool = True
    norm: Literal["layer", "rms"] = "layer"
    start: Literal["normal", "own"] = "normal"
    whole: Spec | None = None

    def mixer(self, layer: int) -> Spec:
        """Return the mixer of a layer."""
        return self.pattern[layer % len(self.pattern)]


@dataclass(frozen=True)
class Template:
    """An architecture as a function of its options: those its mixers leave open, and `positions`."""

    summary: str
    base: Architecture

    @property
    def __signature__(self) -> Signature:
        options = {o.name: o for mixer in self.base.pattern for o in _open_options(mixer)}
        options["positions"] = Option("positions", Positions, self.base.positions)
        keyword = Parameter.KEYWORD_ONLY
        return Signature(
            [Parameter(o.name, keyword, default=o.default, annotation=o.annotation) for o in options.values()]
        )

    def __call__(self, **options: Any) -> Architecture:
        arguments = self.__signature__.bind(**options)
        arguments.apply_defaults()
        values = arguments.arguments
        pattern = []
        for mixer in self.base.pattern:
            chosen = {o.name: values[o.name] for o in _open_options(mixer)}
            pattern.append(Spec(mixer.name, {**mixer.options, **chosen}))
        return replace(self.base, pattern=tuple(pattern), positions=values["positions"])


def _open_options(mixer: Spec) -> Iterator[Option]:
    for name, option in options_of(mixers.options(mixer.name), mixers.given).items():
        if name not in mixer.options:
            yield option


attention = Template(
    "A Transformer: softmax attention and MLP.",
    Architecture((Spec("attention"),), positions=True),
)
base_conv = Template(
    "BaseConv: gated convolutions, short and implicitly long by turns.",
    Architecture((Spec("base_conv"), Spec("base_conv", {"kernel": "long"}))),
)
based = Template(
    "Based: short convolution and linear attention by turns.",
    Architecture((Spec("base_conv"), Spec("linear_attention"))),
)
delta_net = Template(
    "DeltaNet: a memory written by the delta rule.",
    Architecture((Spec("delta_net"),)),
)
h3 = Template(
    "H3: a shift SSM and a diagonal SSM with multiplications between them.",
    Architecture((Spec("h3"),)),
)
hyena = Template(
    "Hyena: gates around an implicit long convolution.",
    Architecture((Spec("hyena"),)),
)
mamba = Template(
    "Mamba: selective state space models behind short convolutions, without MLPs.",
    Architecture((Spec("mamba"),), mlp=False, norm="rms", start="own"),
)
