"""The mixer of a layer, or several side by side, with short convolutions on their projections."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from mecheval.models.layers import ConvolvedLinear
from mecheval.models.parallel import Parallel
from mecheval.models.patterns import Layer
from mecheval.models.registries import mixers


def build_layer(layer: Layer, d_model: int, max_len: int) -> Any:
    """Return the layer's mixer; of several, their sum."""
    built = [(mixer.name, mixers.build(mixer, d_model=d_model, max_len=max_len)) for mixer in layer]
    return built[0][1] if len(built) == 1 else Parallel(built)


def add_convolutions(mixer: nn.Module, places: Sequence[str], taps: int) -> bool:
    """Put short convolutions on queries, keys and values, and tell whether there were any."""
    added = False
    for part in [mixer, *mixer.children()] if isinstance(mixer, Parallel) else [mixer]:
        projections, unequal = getattr(part, "projections", {}), getattr(part, "part_widths", {})
        by_layer: dict[str, dict[str, slice]] = {}
        for place in places:
            if place in projections:
                name, index, count = projections[place]
                equal = [_linear(part, name).out_features // count] * count
                widths = unequal.get(name, equal)
                start = sum(widths[:index])
                by_layer.setdefault(name, {})[place] = slice(start, start + widths[index])
        for name, parts in by_layer.items():
            setattr(part, name, ConvolvedLinear(_linear(part, name), parts, taps))
            added = True
    return added


def _linear(mixer: nn.Module, name: str) -> nn.Linear:
    layer = mixer.get_submodule(name)
    assert isinstance(layer, nn.Linear)
    return layer
