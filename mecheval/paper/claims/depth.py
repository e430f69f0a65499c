"""Claims of appendices D.3 to D.5: the number of layers, and sibling queries."""

from collections.abc import Iterator

from mecheval.metrics.statistics import Seeds
from mecheval.paper.claims.readings import (
    DIRECT_ONES,
    INDUCTIVE,
    NEEDS_TWO,
    TREE,
    accuracy_at_least,
    accuracy_at_most,
    lead,
    share_at_least,
    share_at_most,
)
from mecheval.report.claims import claim
from mecheval.report.evidence import Cell, Evidence
from mecheval.report.numbers import MARGIN, Number, at_least, at_most
from mecheval.sweeps.recipe import ARCHITECTURES

SIBLING = "treecall:query=sibling"
LOCAL = ("based", "base_conv")  # with one layer they are a convolution of three tokens


@claim(
    "figure11",
    "D.3",
    says="One layer is enough for direct retrieval and not for induction.",
    rule="AR: Mamba loses at most 10 points with one layer, Attention and Based have at most 50 %; "
    "ATR: Attention, Based and BaseConv lose at least 5 points",
)
def one_layer(runs: Evidence) -> Iterator[Number]:
    yield at_most(10, "AR, Mamba: two layers less one", _second_layer(runs, "mamba", "recall"))
    yield from accuracy_at_most(runs, {Cell(name, layers=1): 50 for name in INDUCTIVE})
    for name in NEEDS_TWO:
        what = f"ATR, {Cell(name)}: two layers less one"
        yield at_least(5, what, _second_layer(runs, name, TREE))


@claim(
    "figure11",
    "D.3",
    says="On AR the widest Mamba and Hyena are better with one layer than with two.",
    rule="two layers less one at most 0",
    seen=True,
)
def one_layer_better(runs: Evidence) -> Iterator[Number]:
    for name in ("mamba", "hyena"):
        what = f"AR, {Cell(name)}: two layers less one"
        yield at_most(0, what, _second_layer(runs, name, "recall"))


@claim(
    "figure11",
    "D.3",
    says="With one layer Attention, Based and BaseConv become the worst on ATR.",
    rule="each of the others less each of them at least 0",
    seen=True,
)
def one_layer_worst(runs: Evidence) -> Iterator[Number]:
    for name in NEEDS_TWO:
        for better in DIRECT_ONES:
            worst, other = Cell(name, TREE, layers=1), Cell(better, TREE, layers=1)
            what = f"{Cell(better)} less {Cell(name)}"
            yield at_least(0, what, lead(runs, other, worst))


@claim(
    "figure12",
    "D.4",
    says="Mamba and Hyena retrieve in layer 0 whatever their depth, Attention, Based and BaseConv "
    "in layer 1.",
    rule="a share of at least 50 % of that layer's mixer at the query (BaseConv was not asked "
    "until the runs had been seen)",
)
def retrieving_layer(runs: Evidence) -> Iterator[Number]:
    layer_of = {"mamba": 0, "hyena": 0, **dict.fromkeys(NEEDS_TWO, 1)}
    for name, layer in layer_of.items():
        for layers in (2, 3):
            yield share_at_least(runs, Cell(name, layers=layers), "query", *_mixer(layer))


@claim(
    "figure12",
    "D.4",
    says="Some Mambas retrieve in the last layer besides, never in layer 1 of three.",
    rule="a share of at most 40 % of layer 1's mixer at the query",
    seen=True,
)
def mamba_never_middle(runs: Evidence) -> Iterator[Number]:
    yield share_at_most(runs, Cell("mamba", layers=3), "query", *_mixer(1))


@claim(
    "figure13",
    "D.5",
    says="Rightmost sibling queries are easy for all at all widths, but for Based and BaseConv "
    "with one layer.",
    rule="accuracy at least 80 % with one, two and three layers at every width that was run (with "
    "two layers alone until the runs had been seen)",
    seen=True,
)
def siblings(runs: Evidence) -> Iterator[Number]:
    cells = [Cell(name, SIBLING, layers) for layers in (2, 1, 3) for name in ARCHITECTURES]
    for cell in cells:
        if not (cell.layers == 1 and cell.architecture in LOCAL):
            yield from accuracy_at_least(runs, dict.fromkeys(runs.widths(cell), 80))


@claim(
    "figure13",
    "D.5",
    says="Siblings: a second layer helps slightly, a third does not.",
    rule="two layers less one at least 0 for all but Based and BaseConv, "
    f"three less two at most {MARGIN} points for all",
    seen=True,
)
def siblings_depth(runs: Evidence) -> Iterator[Number]:
    for name in ARCHITECTURES:
        if name not in LOCAL:
            gain = _second_layer(runs, name, SIBLING)
            yield at_least(0, f"{Cell(name)}: two layers less one", gain)
    for name in ARCHITECTURES:
        three = lead(runs, Cell(name, SIBLING, 3), Cell(name, SIBLING))
        yield at_most(MARGIN, f"{Cell(name)}: three layers less two", three)


def _second_layer(runs: Evidence, architecture: str, task: str) -> Seeds:
    return lead(runs, Cell(architecture, task), Cell(architecture, task, layers=1))


def _mixer(layer: int) -> tuple[str, str]:
    """Return the site of a layer's mixer and what it is called."""
    return f"blocks.{layer}.mixer_out", f"of layer {layer}'s mixer"


DEPTH = (
    *(one_layer, one_layer_better, one_layer_worst),
    *(retrieving_layer, mamba_never_middle, siblings, siblings_depth),
)
