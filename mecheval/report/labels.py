"""Names, order, colours and markers of architectures, tasks and mechanisms in figures and pages."""

from collections.abc import Iterable, Mapping
from typing import Any

from mecheval.core.errors import InvalidInput
from mecheval.core.options import options_of
from mecheval.core.spec import Scalar, Spec, print_scalar
from mecheval.interventions.sentence import layer_name
from mecheval.metrics.statistics import proportion_interval
from mecheval.models.registries import architectures
from mecheval.tasks import tasks

# Okabe and Ito's colour-blind safe palette, with a darker yellow and grey for black:
# visible on white and on black
_KNOWN = {
    "mamba": ("Mamba", "#D55E00", "o"),
    "hyena": ("Hyena", "#8C8C8C", "v"),
    "h3": ("H3", "#B59A00", "^"),
    "delta_net": ("DeltaNet", "#CC79A7", "P"),
    "based": ("Based", "#009E73", "s"),
    "base_conv": ("BaseConv", "#56B4E9", "X"),
    "attention": ("Attention", "#0072B2", "D"),
}
# names alone: their colours are in order
_LATER = {"gated_delta_net": "Gated DeltaNet", "mamba2": "Mamba-2", "mamba3": "Mamba-3"}
_LATER |= {"gla": "GLA", "hgrn2": "HGRN2", "kda": "KDA", "mlstm": "mLSTM", "retnet": "RetNet"}
_LATER |= {"rg_lru": "RG-LRU", "rwkv7": "RWKV-7", "transformer": "Transformer, modern"}
INK = "#222222"  # of text, and of lines that stand for no architecture
ORDER = tuple(_KNOWN)  # from top to bottom, as in the paper
OTHERS = ("#5B4A9E", "#7A4B2A", "#A03048", "#3E6B5C", "#4B5A6B")
ROLES = {"key": "#E69F00", "value": "#009E73", "next_key": "#56B4E9"}
ROLES |= {"divider": "#8C8C8C", "query": "#CC79A7"}
# matplotlib's markers and Vega's names for them; Vega has no × that has an area to fill
MARKERS = {"o": "circle", "v": "triangle-down", "^": "triangle-up", "P": "cross", "s": "square"}
MARKERS |= {"D": "diamond"}
MARKERS |= {"X": "M-1,-.5L-.5,-1L0,-.5L.5,-1L1,-.5L.5,0L1,.5L.5,1L0,.5L-.5,1L-1,.5L-.5,0Z"}
_TASKS = {"recall": "AR", "treecall": "ATR"}
# options of our tasks in words
_WORDS = {
    ("recall", "pairs"): "{} pairs",
    ("recall", "min_pairs"): "at least {} pairs",
    ("recall", "vocab"): "{} symbols",
    ("recall", "queries"): "{} queries",
    ("recall", "passes"): "{} readings",
    ("treecall", "max_len"): "at most {} tokens",
    ("treecall", "terminals"): "{} terminals",
}


def order(text: str) -> tuple[int, str]:
    """Return the sort key of an architecture."""
    name = Spec.parse(text).name
    return (ORDER.index(name) if name in ORDER else len(ORDER), text)


def architecture(text: str) -> str:
    """Return the display name: `mamba:d_conv=2` is Mamba, d_conv=2."""
    spec = Spec.parse(text)
    if spec.name in ("hybrid", "parallel"):
        return text
    name = _KNOWN.get(spec.name, (_LATER.get(spec.name, spec.name),))[0]
    return ", ".join([name, *_options(spec.options)])


def looks(texts: list[str]) -> dict[str, tuple[str, str]]:
    """Return colour and marker of each architecture: fixed if built in, by order otherwise."""
    result, others = {}, 0
    for text in texts:
        name = Spec.parse(text).name
        if name in _KNOWN:
            result[text] = _KNOWN[name][1:]
        else:
            result[text] = OTHERS[others % len(OTHERS)], list(MARKERS)[others % len(MARKERS)]
            others += 1
    return result


def option(text: str, name: str) -> Scalar | None:
    """Return an option of an architecture or its default; None if it has no such option."""
    spec = Spec.parse(text)
    if name in spec.options or spec.name not in architectures.names():
        return spec.options.get(name)
    known = options_of(architectures.get(spec.name))
    return known[name].default if name in known else None


def task(text: str) -> str:
    """Return the display name: `recall:pairs=4,vocab=64` is AR (4 pairs, 64 symbols).

    Unknown tasks are returned as given.
    """
    try:
        spec = tasks.expand(Spec.parse(text))
    except InvalidInput:
        return text
    words = []
    for option in _options(spec.options):
        name, _, value = option.partition("=")
        words.append(_WORDS.get((spec.name, name), f"{name}={{}}").format(value))
    name = _TASKS.get(spec.name, spec.name)
    return f"{name} ({', '.join(words)})" if words else name


def short_task(text: str) -> str:
    """Return the display name without options: AR."""
    return task(text).partition(" (")[0]


def convolution(verdict: Mapping[str, Any]) -> str:
    """Return where a short convolution joins key and value, as `layer 0, next key`.

    In a model whose layers differ it is `layer 0 (mamba), next key`.
    """
    text = verdict.get("convolution")
    if not text:
        return "–"
    site, _, role = str(text).partition(" at ")
    layer = layer_name(int(site.split(".")[1]), verdict.get("kinds") or ())
    return f"{layer}, {role.replace('_', ' ')}"


def seed_count(k: int, n: int) -> str:
    """Say how many seeds agree, with Wilson's interval: `3 of 3 seeds [44 %, 100 %]`."""
    if n == 0:
        return "0 seeds"
    low, high = proportion_interval(k, n)
    return f"{k} of {n} seed{'s' * (n > 1)} [{100 * low:.0f} %, {100 * high:.0f} %]"


def _options(options: Mapping[str, Scalar]) -> list[str]:
    return [f"{name}={print_scalar(value)}" for name, value in options.items()]


def looks_by_name(texts: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return colour and marker of architectures by display name, in the order of figures."""
    different = sorted(set(texts), key=order)
    return {architecture(text): look for text, look in looks(different).items()}
