"""Architectures: a pattern of mixers, tiled over the layers, and the block around them.

They are the paper's (§4.1, appendix A) and later ones. An ablation is an option, never a class of
its own. A hybrid is a pattern that the user writes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from inspect import Signature
from typing import Annotated, Any, Literal

from mecheval.core.errors import InvalidInput
from mecheval.core.options import Field, Option, options_of
from mecheval.core.spec import Spec
from mecheval.models.patterns import Layer, parse_layer, parse_pattern, print_layer
from mecheval.models.registries import mixers
from mecheval.models.short_convs import Sconv, Taps, missing_part, places_of

Positions = Annotated[bool, Field(description="learned absolute positions added to the embedding")]
Norm = Literal["layer", "rms"]
BlockNorm = Annotated[Norm, Field(description="LayerNorm or RMSNorm before mixers and MLPs")]
FinalNorm = Annotated[Norm, Field(description="LayerNorm or RMSNorm after the last block")]


@dataclass(frozen=True)
class Architecture:
    """A pattern of layers and the block around their mixers.

    A layer is one mixer, or several side by side. `sconv` are the places of short convolutions
    with `sconv_taps` taps. `whole` is a third-party model in place of the backbone and all mixers.
    """

    pattern: tuple[Layer, ...]
    positions: bool = False
    mlp: bool = True
    norm: Norm = "layer"
    final_norm: Norm = "layer"
    sconv: str = ""
    sconv_taps: int = 4
    whole: Spec | None = None

    def layer(self, index: int) -> Layer:
        """Return the mixers of a layer."""
        return self.pattern[index % len(self.pattern)]

    @property
    def mixers(self) -> tuple[Spec, ...]:
        """Every mixer of the pattern."""
        return tuple(mixer for layer in self.pattern for mixer in layer)

    def kinds(self, layers: int) -> tuple[str, ...]:
        """Return the mixers of each layer by name, if the layers differ.

        Their options are said where names do not tell the layers apart.
        """
        used = [self.layer(index) for index in range(layers)] if self.pattern else []
        names = ["|".join(mixer.name for mixer in layer) for layer in used]
        texts = [print_layer(tuple(map(mixers.shortest, layer))) for layer in used]
        if len({*texts}) < 2:
            return ()
        return tuple(names if len({*names}) == len({*texts}) else texts)

    def with_convolutions(self, sconv: str, sconv_taps: int) -> "Architecture":
        """Return it with short convolutions, or raise InvalidInput if it has no such places."""
        places = places_of(sconv)
        projections = [mixers.options(mixer.name).projections for mixer in self._with_projections()]
        if sconv_taps != 4 and not places:
            raise InvalidInput(f"sconv_taps={sconv_taps} needs places; give sconv as well")
        if problem := missing_part(places, self.mlp, projections):
            names = " and ".join(dict.fromkeys(mixer.name for mixer in self.mixers))
            raise InvalidInput(f"sconv={sconv}: {names} {problem}")
        return replace(self, sconv=places, sconv_taps=sconv_taps)

    def _with_projections(self) -> Iterator[Spec]:
        for mixer in self.mixers:
            if hasattr(mixers.options(mixer.name), "projections"):
                yield mixer


@dataclass(frozen=True)
class Template:
    """An architecture as a function of its options: those of its mixers and of the block."""

    summary: str
    base: Architecture

    @property
    def __signature__(self) -> Signature:
        options = [option for mixer in self.base.mixers for option in _open_options(mixer)]
        options.append(Option("positions", Positions, self.base.positions))
        options.append(Option("final_norm", FinalNorm, self.base.final_norm))
        options += [Option("sconv", Sconv, ""), Option("sconv_taps", Taps, 4)]
        return Signature([option.parameter for option in options])

    def __call__(self, **options: Any) -> Architecture:
        arguments = self.__signature__.bind(**options)
        arguments.apply_defaults()
        values = arguments.arguments
        pattern = []
        for mixer in self.base.mixers:
            chosen = {option.name: values[option.name] for option in _open_options(mixer)}
            pattern.append((Spec(mixer.name, {**mixer.options, **chosen}),))
        block = {name: values[name] for name in ("positions", "final_norm")}
        architecture = replace(self.base, pattern=tuple(pattern), **block)
        return architecture.with_convolutions(values["sconv"], values["sconv_taps"])


def _open_options(mixer: Spec) -> list[Option]:
    options = options_of(mixers.options(mixer.name), mixers.given)
    return [option for name, option in options.items() if name not in mixer.options]


def _template(summary: str, *pattern: str, **block: Any) -> Template:
    return Template(summary, Architecture(tuple((Spec.parse(text),) for text in pattern), **block))


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
gla = _template(
    "GLA: linear attention whose memory decays by channel and token.", "gla", norm="rms"
)
h3 = _template("H3: a shift SSM and a diagonal SSM with multiplications between them.", "h3")
hgrn2 = _template(
    "HGRN2: a gated linear RNN whose keys are what its memory forgets.", "hgrn2", norm="rms"
)
hyena = _template("Hyena: gates around an implicit long convolution.", "hyena")
kda = _template(
    "Kimi Delta Attention: the delta rule on a memory whose rows decay one by one.",
    "kda",
    norm="rms",
)
mamba = _template(
    "Mamba: selective state space models behind short convolutions, without MLPs.",
    "mamba",
    mlp=False,
    norm="rms",
)
mamba2 = _template(
    "Mamba-2: linear attention on a memory that decays, behind short convolutions, without MLPs.",
    "mamba2",
    mlp=False,
    norm="rms",
)
mamba3 = _template(
    "Mamba-3: a rotating memory that each token is written to twice, without short convolutions.",
    "mamba3",
    norm="rms",
)
mlstm = _template(
    "xLSTM: a memory of keys and values behind exponential gates, the mLSTM.", "mlstm", norm="rms"
)
retnet = _template(
    "RetNet: retention, a memory that decays at a fixed rate, with rotary positions.", "retnet"
)
rg_lru = _template(
    "Hawk: the RG-LRU, a vector that decays by gates of its own, in Griffin's recurrent block.",
    "rg_lru",
    norm="rms",
)
rwkv7 = _template(
    "RWKV-7: a general delta rule on a memory that decays, behind token shifts.", "rwkv7"
)
transformer = _template(
    "A modern Transformer: softmax attention with rotary positions, RMSNorm and MLP.",
    "attention:rotary=true",
    norm="rms",
)


def hybrid(
    pattern: Annotated[str, Field(description="the mixers of the layers, as mamba*3+attention")],
    *,
    positions: Positions = False,
    mlp: Annotated[bool, Field(description="an MLP in every block")] = True,
    norm: BlockNorm = "layer",
    final_norm: FinalNorm = "layer",
    sconv: Sconv = "",
    sconv_taps: Taps = 4,
) -> Architecture:
    """A pattern of mixers: hybrid:mamba*3+attention[heads=2], or a|b for two in one block."""
    whole = Architecture(parse_pattern(pattern), positions, mlp, norm, final_norm)
    return whole.with_convolutions(sconv, sconv_taps)


def parallel(
    mixers: Annotated[str, Field(description="the mixers of every block, as attention|mamba")],
    *,
    positions: Positions = False,
    mlp: Annotated[bool, Field(description="an MLP in every block")] = True,
    norm: BlockNorm = "layer",
    final_norm: FinalNorm = "layer",
    sconv: Sconv = "",
    sconv_taps: Taps = 4,
) -> Architecture:
    """Mixers side by side in every block, whose outputs add up: parallel:attention|mamba."""
    whole = Architecture((parse_layer(mixers),), positions, mlp, norm, final_norm)
    return whole.with_convolutions(sconv, sconv_taps)
