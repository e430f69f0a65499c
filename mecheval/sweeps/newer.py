"""Our recipes beyond the paper: which part of an architecture makes it retrieve, which store?

`lattice` switches the parts of Gated DeltaNet off and on, `convolutions` puts short convolutions
at one place after another, `modern` compares every architecture that there is, and `mamba3` tests
a prediction that was written before any of its runs (paper/claims/predicted.py).
"""

from collections.abc import Iterator, Mapping

from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import ARCHITECTURES, NEWER, Scale

TASKS = ("recall", "atr")
EVERYTHING, NOTHING = "everything: Gated DeltaNet", "nothing: S = Σ k vᵀ"
OFF: Mapping[str, str] = {  # each part of Gated DeltaNet, and the option that switches it off
    "decay": "decay=none",
    "delta": "delta=false",
    "β": "beta=false",
    "convolution": "d_conv=0",
    "gate": "gate=false",
    "norm": "norm=false",
}
# what can be added to nothing, beside its parts: they have a default that is no switch
_ADDED = {"decay by channel": "decay=channel", "normaliser": "normaliser=true"}

# one layer retrieves on its own or not; with four layers the pattern is whole
HYBRIDS = ("hybrid:gated_delta_net+attention", "parallel:attention|mamba")
DEEP_HYBRIDS = ("hybrid:gated_delta_net*3+attention",)  # one of four layers attends, as published

MAMBAS = ("mamba3", "mamba3:d_conv=4", "mamba2:d_conv=0", "mamba2")
SEEDS = 10  # of a scale that has several

PLACES = ("", "A", "q", "k", "v", "O", "C", "D", "M", "AqkvCD")  # the last is Canon's
# Those whose own short convolution can be switched off, so that a place is all there is: Hyena's
# and H3's cannot. Mamba has no MLP, and no queries or keys of its own.
WITHOUT_CONVOLUTION: Mapping[str, tuple[str, ...]] = {
    "attention": PLACES,
    "gated_delta_net:d_conv=0": PLACES,
    "gated_delta_net:beta=false,d_conv=0,decay=none,delta=false,gate=false,norm=false,"
    "normaliser=true": PLACES,
    "mamba:d_conv=0": ("", "A", "O"),
}


def lattice(scale: Scale) -> Iterator[Experiment]:
    """Switch the parts of Gated DeltaNet on and off one at a time, on AR and ATR."""
    for task in TASKS:
        yield from scale.widest().experiments(task, list(lattice_nodes().values()))


def lattice_nodes() -> dict[str, str]:
    """Return the architectures by what is switched on or off, from nothing to everything."""
    texts = {NOTHING: _without(*OFF)}
    for part in OFF:
        texts[f"+ {part}"] = _without(*(other for other in OFF if other != part))
    for added, option in _ADDED.items():
        others = [other for other in OFF if OFF[other].split("=")[0] != option.split("=")[0]]
        texts[f"+ {added}"] = f"{_without(*others)},{option}"
    for part in OFF:
        texts[f"− {part}"] = _without(part)
    texts["decay by channel, as KDA"] = "gated_delta_net:decay=channel"
    return {**texts, EVERYTHING: "gated_delta_net"}


def convolutions(scale: Scale) -> Iterator[Experiment]:
    """Put a short convolution at one place after another on AR, into models without any."""
    for architecture, places in WITHOUT_CONVOLUTION.items():
        texts = [_with_convolution(architecture, place) for place in places]
        yield from scale.aside().widest().experiments("recall", texts)


def modern(scale: Scale) -> Iterator[Experiment]:
    """Train every architecture, and hybrids, on AR and ATR at the largest width."""
    for task in TASKS:
        every = (*ARCHITECTURES, *NEWER, *HYBRIDS)
        yield from scale.widest().experiments(task, every)
        yield from scale.widest().experiments(task, DEEP_HYBRIDS, layers=(4,))


def mamba3(scale: Scale) -> Iterator[Experiment]:
    """Train Mamba-3 and Mamba-2 on AR with and without convolution, with one layer and two."""
    widest = scale.widest()  # at every rate: a wrong one must not make it fail
    if len(widest.seeds_of(widest.recall, max(widest.recall.widths))) > 1:
        widest = widest.with_seeds(SEEDS)
    yield from widest.experiments("recall", MAMBAS, layers=(1, 2))


def _without(*parts: str) -> str:
    return f"gated_delta_net:{','.join(OFF[part] for part in parts)}"


def _with_convolution(architecture: str, places: str) -> str:
    if not places:
        return architecture
    return f"{architecture}{',' if ':' in architecture else ':'}sconv={places}"
