"""Patterns of mixers as people type them: "gated_delta_net*3+attention[heads=2]|mamba".

+    the next layer           *3   as many layers of the same
|    mixers side by side in one layer, which add their outputs
[ ]  a mixer's options, as behind its name elsewhere
"""

import re

from mecheval.core.errors import InvalidInput
from mecheval.core.spec import Spec
from mecheval.models.registries import mixers

Layer = tuple[Spec, ...]  # mixers side by side

_LAYER = re.compile(r"((?:[^\[\]+*]|\[[^\[\]]*\])+)(?:\*([0-9]{1,3}))?")
_MIXER = re.compile(r"(\w+)(?:\[([^\[\]]+)\])?")
MOST = 256  # layers of a pattern


def parse_pattern(text: str) -> tuple[Layer, ...]:
    """Return the layers of a pattern, with options at their defaults left out."""
    layers: list[Layer] = []
    for part in _split(text, "+"):
        match = _LAYER.fullmatch(part)
        if not match or match[2] == "0":
            raise InvalidInput(f"{part!r} must read mixer, mixer[option=value] or mixer*3")
        layers += [parse_layer(match[1])] * int(match[2] or 1)
    if len(layers) > MOST:
        raise InvalidInput(f"the pattern has {len(layers)} layers; it may have up to {MOST}")
    return tuple(layers)


def parse_layer(text: str) -> Layer:
    """Return the mixers that stand side by side in a layer."""
    return tuple(_parse_mixer(part) for part in _split(text, "|"))


def print_pattern(layers: tuple[Layer, ...]) -> str:
    """Return the text that `parse_pattern` reads as these layers."""
    parts: list[tuple[str, int]] = []
    for layer in map(print_layer, layers):
        if parts and parts[-1][0] == layer:
            parts[-1] = layer, parts[-1][1] + 1
        else:
            parts.append((layer, 1))
    return "+".join(layer if times == 1 else f"{layer}*{times}" for layer, times in parts)


def print_layer(layer: Layer) -> str:
    return "|".join(_print_mixer(spec) for spec in layer)


def _print_mixer(spec: Spec) -> str:
    name, _, options = str(spec).partition(":")
    return f"{name}[{options}]" if options else name


def _parse_mixer(text: str) -> Spec:
    match = _MIXER.fullmatch(text)
    if not match:
        raise InvalidInput(f"{text!r} must be a mixer, as in 'attention' or 'attention[heads=2]'")
    spec = Spec.parse(f"{match[1]}:{match[2]}" if match[2] else match[1])
    return mixers.shortest(spec)


def _split(text: str, separator: str) -> list[str]:
    """Split at separators outside brackets."""
    parts = re.split(rf"{re.escape(separator)}(?![^\[]*\])", text)
    if not all(parts):
        raise InvalidInput(f"{text!r} has nothing between two {separator!r}, before or after one")
    return parts
