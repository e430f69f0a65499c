"""Architectures: a pattern of mixers, tiled over the layers, and the block around them.

They are the paper's (§4.1, appendix A). An ablation is an option, never a class of its own.
"""

from dataclasses import dataclass, replace
from inspect import Signature
from typing import Annotated, Any, Literal

from mecheval.core.options import Field, Option, options_of
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
    """An architecture as a function of its options: those of its mixers, and `positions`."""

    summary: str
    base: Architecture

    @property
    def __signature__(self) -> Signature:
        options = [option for mixer in self.base.pattern for option in _open_options(mixer)]
        options.append(Option("positions", Positions, self.base.positions))
        return Signature([option.parameter for option in options])

    def __call__(self, **options: Any) -> Architecture:
        arguments = self.__signature__.bind(**options)
        arguments.apply_defaults()
        values = arguments.arguments
        pattern = []
        for mixer in self.base.pattern:
            chosen = {option.name: values[option.name] for option in _open_options(mixer)}
            pattern.append(Spec(mixer.name, {**mixer.options, **chosen}))
        return replace(self.base, pattern=tuple(pattern), positions=values["positions"])


def _open_options(mixer: Spec) -> list[Option]:
    options = options_of(mixers.options(mixer.name), mixers.given)
    return [option for name, option in options.items() if name not in mixer.options]


def _template(summary: str, *pattern: str, **block: Any) -> Template:
    return Template(summary, Architecture(tuple(map(Spec.parse, pattern)), **block))


attention = _template("A Transformer: softmax attention and MLP.", "attention", positions=True)
base_conv = _template(
    "BaseConv: gated convolutions, short and implicitly long by turns.",
    "base_conv",
    "base_conv:kernel=long",
)
based = _template(
    "Based: short convolution and linear attention by turns.",
    "base_conv",
    "linear_attention",
)
delta_net = _template("DeltaNet: a memory written by the delta rule.", "delta_net")
gated_delta_net = _template(
    "Gated DeltaNet: the delta rule on a memory that decays.", "gated_delta_net"
)
h3 = _template("H3: a shift SSM and a diagonal SSM with multiplications between them.", "h3")
hyena = _template("Hyena: gates around an implicit long convolution.", "hyena")
mamba = _template(
    "Mamba: selective state space models behind short convolutions, without MLPs.",
    "mamba",
    mlp=False,
    norm="rms",
    start="own",
)
