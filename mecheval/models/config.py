"""The configuration of a model, without torch: validated before anything heavy is imported."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated

from mecheval.core.errors import InvalidInput
from mecheval.core.options import Field, settle
from mecheval.core.registry import Registry
from mecheval.core.spec import Scalar, Spec
from mecheval.models.architecture import Architecture
from mecheval.models.patterns import parse_layer, parse_pattern, print_layer, print_pattern
from mecheval.models.registries import architectures, mixers, models
from mecheval.models.short_convs import places_of, places_of_canon

if TYPE_CHECKING:
    Name = str
else:
    Name = str | type  # a class is replaced by its name
HF_CONFIG = "hf-config"
SIZES = {"hidden": "d_model", "layers": "layers"}  # what hf-config calls the sizes of a model
Factor = Annotated[float, Field(gt=0, le=1e3)]


@dataclass(frozen=True)
class ModelConfig:
    """Everything that determines a model but its vocabulary and seed.

    `init_linear` and `init_embedding` multiply the paper's initial weights.

    Parameters
    ----------
    architecture
        The name of an architecture, mixer or model with options, as "mamba:d_conv=2"; or a
        class, which is then registered by its name.
    d_model
        Width of the stream.
    layers
        Number of blocks.
    max_len
        Longest document.
    init_linear
        Factor of the initial linear weights.
    init_embedding
        Factor of the initial embeddings.

    Examples
    --------
    >>> from mecheval import ModelConfig
    >>> ModelConfig("mamba:d_conv=4,d_state=8", layers=1).architecture  # defaults are left out
    'mamba:d_state=8'
    >>> ModelConfig("mambo")
    Traceback (most recent call last):
    mecheval.core.errors.InvalidInput: no architecture named 'mambo'; did you mean 'mamba'? ...
    """

    architecture: Annotated[
        Name, Field(description="an architecture, a mixer or a model, with options")
    ]
    _: KW_ONLY
    d_model: Annotated[int, Field(ge=1, le=2**16, description="width of the stream")] = 64
    layers: Annotated[int, Field(ge=1, le=256, description="blocks")] = 2
    max_len: Annotated[int, Field(ge=1, le=2**20, description="longest document")] = 1024
    init_linear: Annotated[Factor, Field(description="times the start of linear weights")] = 1.0
    init_embedding: Annotated[Factor, Field(description="times the start of embeddings")] = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.architecture, type):
            from mecheval.plugins import register_object

            object.__setattr__(self, "architecture", register_object(self.architecture))
        settle(self)
        spec, sizes = split_sizes(_canonical(Spec.parse(self.architecture)))
        self._take_sizes(sizes)
        architecture = build_architecture(spec)
        object.__setattr__(self, "architecture", str(_registry_of(spec).shortest(spec)))
        for mixer in architecture.mixers:
            mixers.check(mixer, d_model=self.d_model, max_len=self.max_len)
        if spec.name == "hybrid" and self.layers < len(architecture.pattern):
            whole = f"those of the pattern {spec.options['pattern']}"
            enough = f"use at least {len(architecture.pattern)}"
            raise InvalidInput(f"layers={self.layers} are fewer than {whole}; {enough}")
        if architecture.whole:
            models.check(spec, d_model=self.d_model, layers=self.layers, max_len=self.max_len)

    def _take_sizes(self, sizes: Mapping[str, Scalar]) -> None:
        """Take the width and depth that the architecture's options give."""
        for name, value in sizes.items():
            if (here := getattr(self, name)) not in (value, getattr(ModelConfig, name)):
                problem = f"model.{name}={here} and {name}={value} of the architecture differ"
                raise InvalidInput(f"{problem}; give one of them")
            object.__setattr__(self, name, value)
        settle(self)

    @property
    def third_party(self) -> bool:
        """True if one of its mixers, or the whole model, comes from a plug-in."""
        architecture = build_architecture(self.architecture)
        ours = all(mixers.is_built_in(mixer.name) for mixer in architecture.mixers)
        return architecture.whole is not None or not ours

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages besides our own that have the model's code."""
        return ("transformers",) if Spec.parse(self.architecture).name == HF_CONFIG else ()


def build_architecture(text: str | Spec) -> Architecture:
    """Return the Architecture of a spec; a mixer or a whole model is one by itself."""
    spec, _ = split_sizes(Spec.parse(text) if isinstance(text, str) else text)
    registry = _registry_of(spec)
    if registry is models:
        models.check(spec)
        return Architecture((), whole=spec)
    return architectures.build(spec) if registry is architectures else Architecture(((spec,),))


def layers_for(text: str) -> int:
    """Return the usual number of layers, or that of a pattern if it has more."""
    spec, sizes = split_sizes(_canonical(Spec.parse(text)))
    if "layers" in sizes:
        return ModelConfig(text).layers
    return max(ModelConfig.layers, len(build_architecture(spec).pattern))


def split_sizes(spec: Spec) -> tuple[Spec, dict[str, Scalar]]:
    """Return a spec without width and depth, and these by the names of a model's fields."""
    names = SIZES if spec.name == HF_CONFIG else {}
    sizes = {names[n]: value for n, value in spec.options.items() if n in names}
    return Spec(spec.name, {n: v for n, v in spec.options.items() if n not in names}), sizes


def _canonical(spec: Spec) -> Spec:
    """Return one spec for all ways to write a pattern and places of short convolutions."""
    options = dict(spec.options)
    if spec.name == "hybrid" and "pattern" in options:
        options["pattern"] = print_pattern(parse_pattern(str(options["pattern"])))
    if spec.name == "parallel" and "mixers" in options:
        options["mixers"] = print_layer(parse_layer(str(options["mixers"])))
    if "canon" in options and spec.name in architectures.names():
        if "sconv" in options:
            raise InvalidInput("canon is another name of sconv; give one of them")
        options["sconv"] = places_of_canon(str(options.pop("canon")))
    if isinstance(sconv := options.get("sconv"), str) and spec.name in architectures.names():
        options["sconv"] = places_of(sconv)
    return Spec(spec.name, options)


def _registry_of(spec: Spec) -> Registry:
    for registry in (architectures, mixers, models):
        if spec.name in registry.names():
            return registry
    return architectures
