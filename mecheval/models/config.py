"""What determines a model, without torch: it is checked before anything heavy is loaded."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from pydantic import Field

from mecheval.core.options import validate
from mecheval.core.registry import Registry
from mecheval.core.spec import Spec
from mecheval.models.architecture import Architecture
from mecheval.models.registries import architectures, mixers, models


@dataclass(frozen=True)
class ModelConfig:
    """Everything that determines a model but its vocabulary and seed. `init_*` are multiples of the paper's start."""

    architecture: Annotated[str, Field(description="an architecture, a mixer or a model, with options")]
    _: KW_ONLY
    d_model: Annotated[int, Field(ge=1, le=2**16, description="width of the stream")] = 64
    layers: Annotated[int, Field(ge=1, le=256, description="blocks")] = 2
    max_len: Annotated[int, Field(ge=1, le=2**20, description="longest document")] = 1024
    init_linear: Annotated[float, Field(gt=0, le=1e3, description="times the start of linear weights")] = 1.0
    init_embedding: Annotated[float, Field(gt=0, le=1e3, description="times the start of embeddings")] = 1.0

    def __post_init__(self) -> None:
        for name, value in validate(type(self), vars(self)).items():
            object.__setattr__(self, name, value)
        spec = Spec.parse(self.architecture)
        object.__setattr__(self, "architecture", str(_home(spec).shortest(spec)))
        architecture = build_architecture(spec)
        for mixer in architecture.pattern:
            mixers.check(mixer, d_model=self.d_model, max_len=self.max_len)
        if architecture.whole:
            models.check(spec, d_model=self.d_model, layers=self.layers, max_len=self.max_len)


def build_architecture(text: str | Spec) -> Architecture:
    """What an architecture's name stands for. A mixer by itself is an architecture, too, and so is a whole model."""
    spec = Spec.parse(text) if isinstance(text, str) else text
    home = _home(spec)
    if home is models:
        models.check(spec)
        return Architecture((), whole=spec)
    return architectures.build(spec) if home is architectures else Architecture((spec,))


def _home(spec: Spec) -> Registry:
    return next((home for home in (architectures, mixers, models) if spec.name in home.names()), architectures)
