"""How architectures, tasks and mechanisms are called and coloured in figures and pages."""

from collections.abc import Iterable, Mapping
from typing import Any

from mecheval.core.errors import InvalidInput
from mecheval.core.options import options_of
from mecheval.core.spec import Scalar, Spec, print_scalar
from mecheval.models.registries import architectures
from mecheval.tasks import tasks

# Okabe and Ito's colours with a darker yellow and a grey for black: told apart by everybody, on white and on black
_KNOWN = {
    "mamba": ("Mamba", "#D55E00", "o"),
    "hyena": ("Hyena", "#8C8C8C", "v"),
    "h3": ("H3", "#B59A00", "^"),
    "delta_net": ("DeltaNet", "#CC79A7", "P"),
    "based": ("Based", "#009E73", "s"),
    "base_conv": ("BaseConv", "#56B4E9", "X"),
    "attention": ("Attention", "#0072B2", "D"),
}
INK = "#222222"  # of text, and of lines that are no architecture's
ORDER = tuple(_KNOWN)  # down the paper's figures 3 and 7
OTHERS = ("#5B4A9E", "#7A4B2A", "#A03048", "#3E6B5C", "#4B5A6B")
ROLES = {"key": "#E69F00", "value": "#009E73", "next_key": "#56B4E9", "divider": "#8C8C8C", "query": "#CC79A7"}
# of matplotlib, and what Vega calls them; × has no name there that has an area to fill
MARKERS = {"o": "circle", "v": "triangle-down", "^": "triangle-up", "P": "cross", "s": "square", "D": "diamond"}
MARKERS |= {"X": "M-1,-.5L-.5,-1L0,-.5L.5,-1L1,-.5L.5,0L1,.5L.5,1L0,.5L-.5,1L-1,.5L-.5,0Z"}
_TASKS = {"recall": "AR", "treecall": "ATR"}


def order(text: str) -> tuple[int, str]:
    """Where an architecture stands among others."""
    name = Spec.parse(text).name
    return (ORDER.index(name) if name in ORDER else len(ORDER), text)


def architecture(text: str) -> str:
    """`mamba:d_conv=2` is Mamba, d_conv=2."""
    spec = Spec.parse(text)
    return ", ".join([_KNOWN.get(spec.name, (spec.name,))[0], *_options(spec.options)])


def looks(texts: list[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each architecture: the same in every figure, and those of strangers in their order."""
    others = [text for text in texts if Spec.parse(text).name not in _KNOWN]
    strange = {text: (OTHERS[i % len(OTHERS)], list(MARKERS)[i % len(MARKERS)]) for i, text in enumerate(others)}
    return {text: strange[text] if text in strange else _KNOWN[Spec.parse(text).name][1:] for text in texts}


def option(text: str, name: str) -> Scalar | None:
    """Of an architecture: as it was given, or its default; None if it has none of that name."""
    spec = Spec.parse(text)
    if name in spec.options or spec.name not in architectures.names():
        return spec.options.get(name)
    known = options_of(architectures.get(spec.name))
    return known[name].default if name in known else None


def task(text: str) -> str:
    """`treecall:max_len=64` is ATR, max_len=64; what nobody knows is shown as it is."""
    try:
        spec = tasks.expand(Spec.parse(text))
    except InvalidInput:
        return text
    return ", ".join([_TASKS.get(spec.name, spec.name), *_options(spec.options)])


def convolution(verdict: Mapping[str, Any]) -> str:
    """Of `blocks.0.mixer.conv_out at next_key`: where a short convolution joins key and value."""
    text = verdict.get("convolution")
    if not text:
        return "–"
    site, _, role = str(text).partition(" at ")
    return f"layer {site.split('.')[1]}, {role.replace('_', ' ')}"


def _options(options: Mapping[str, Scalar]) -> list[str]:
    return [f"{name}={print_scalar(value)}" for name, value in options.items()]


def looks_by_name(texts: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return colour and marker of architectures by display name, in the order of figures."""
    different = sorted(set(texts), key=order)
    return {architecture(text): look for text, look in looks(different).items()}
