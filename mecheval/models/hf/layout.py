"""Finds the layers of a model, and what each of them is."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from mecheval.core.errors import InvalidInput
from mecheval.models.hf.families import NAMES, Family
from mecheval.models.hf.places import put_at
from mecheval.models.hf.taps import place_taps
from mecheval.models.site import Site


@dataclass(frozen=True)
class Layer:
    """A block: its mixers by path, each with its kind, and where its tensors are."""

    path: str
    module: nn.Module
    mixers: Mapping[str, str]
    places: Mapping[str, str]

    @property
    def kind(self) -> str:
        return "|".join(self.mixers.values()) or "block"


def find_layers(module: nn.Module, family: Family) -> list[Layer]:
    """Return the blocks of a model in their order."""
    stack = module.get_submodule(family.layers)
    assert isinstance(stack, nn.ModuleList)
    return [_find_layer(f"{family.layers}.{n}", layer, family) for n, layer in enumerate(stack)]


def guess_family(module: Any) -> Family:
    """Return where a model of an unknown family has its blocks: its longest list of layers."""
    lists = [(name, part) for name, part in module.named_modules() if _is_stack(part)]
    paths = {id(part): name for name, part in module.named_modules()}
    ends = module.get_input_embeddings(), module.get_output_embeddings()
    kind = module.config.model_type
    if not lists or any(id(end) not in paths for end in ends):
        problem = f"model_type={kind!r} is in no table, and its layers are not found"
        raise InvalidInput(f"{problem}; known families: {', '.join(NAMES)}")
    layers = max(lists, key=lambda item: len(item[1]))[0]
    note = f"{kind} is not in the table of families: it has sites between its blocks alone"
    embed, head = (paths[id(end)] for end in ends)
    return Family(
        layers=layers,
        embed=embed,
        norm="",
        head=head,
        mixers={},
        mlps=(),
        notes=(note,),
    )


def _is_stack(part: nn.Module) -> bool:
    return isinstance(part, nn.ModuleList) and len(part) > 0


def place_inside(layer: Layer, family: str) -> Iterator[tuple[str, Site]]:
    """Create the sites inside the mixers of a block; side by side, each has its name in front."""
    several = len(layer.mixers) > 1
    for path, kind in layer.mixers.items():
        prefix = f"mixer.{kind}" if several else "mixer"
        yield from place_taps({prefix: layer.module.get_submodule(path)}, family).items()
        if several:
            site = Site("batch time d_model", f"the output of {kind}")
            put_at(layer.module, f"output of {path}", site)
            yield f"{prefix}_out", site


def _find_layer(path: str, layer: nn.Module, family: Family) -> Layer:
    known = dict(layer.named_modules())
    mixers = {name: _kind(known[name], family, name) for name in family.mixers if name in known}
    if family.mixers and not mixers:
        raise InvalidInput(f"{path} has none of the mixers {', '.join(family.mixers)}")
    first = next(iter(mixers), "")
    places = {"mixer_in": f"input of {first}", "mixer_out": f"output of {first}"} if first else {}
    for mlp in family.mlps:
        if mlp in known:
            places |= {"mlp_in": f"input of {mlp}", "mlp_out": f"output of {mlp}"}
    for name in mixers:
        places |= family.places.get(name, {})
    return Layer(path, layer, mixers, places)


def _kind(mixer: nn.Module, family: Family, path: str) -> str:
    kinds = family.mixers[path]
    kind = kinds if isinstance(kinds, str) else kinds[type(mixer).__name__]
    windowed = kind == "attention" and getattr(mixer, "sliding_window", None)
    return f"window_{kind}" if windowed else kind
