"""Readings that several claims share: levels of accuracy, shares and mechanisms."""

from collections.abc import Iterable, Iterator, Mapping

from mecheval.metrics.statistics import Seeds
from mecheval.report.evidence import LAYER_1, Cell, Evidence
from mecheval.report.numbers import (
    Number,
    count_at_least,
    count_at_most,
    count_mechanism,
    gaps,
)

TREE = "treecall"
ENOUGH, LITTLE = 50, 40  # per cent of a share: it is there, it is not
INDUCTIVE = ("attention", "based")  # by the paper
NEEDS_TWO = (*INDUCTIVE, "base_conv")  # layers, by the paper
DIRECT_ONES = ("mamba", "delta_net", "hyena", "h3")


def accuracy_at_least(runs: Evidence, bounds: Mapping[Cell, int]) -> Iterator[Number]:
    for cell, bound in bounds.items():
        yield count_at_least(bound, f"{cell}: accuracy", runs.accuracy(cell))


def accuracy_at_most(runs: Evidence, bounds: Mapping[Cell, int]) -> Iterator[Number]:
    for cell, bound in bounds.items():
        yield count_at_most(bound, f"{cell}: accuracy", runs.accuracy(cell))


def share_at_least(runs: Evidence, cell: Cell, role: str, *place: str) -> Number:
    """Count the seeds in which a place, a site and the words for it, restores half or more."""
    return count_at_least(ENOUGH, *_share(runs, cell, role, *place))


def share_at_most(runs: Evidence, cell: Cell, role: str, *place: str) -> Number:
    """Count the seeds in which a place restores little."""
    return count_at_most(LITTLE, *_share(runs, cell, role, *place))


def mechanisms(
    runs: Evidence,
    mechanism: str,
    cells: Iterable[Cell],
    label: str = "",
) -> Iterator[Number]:
    """Count the seeds of each cell with a mechanism; `label` opens the names."""
    for cell in cells:
        what = f"{label}{cell}: mechanism"
        yield count_mechanism(mechanism, what, runs.mechanisms(cell))


def lead(runs: Evidence, cell: Cell, other: Cell, split: str = "test") -> Seeds:
    """Return by how much one cell is more accurate than another, seed by seed."""
    return gaps(runs.accuracy(cell, split), runs.accuracy(other, split))


def _share(
    runs: Evidence, cell: Cell, role: str, site: str = LAYER_1, where: str = ""
) -> tuple[str, Seeds]:
    """Return `Mamba: share of layer 0's mixer at the query`, and the share of each seed."""
    words = f"{cell}: share {where} at the {role.replace('_', ' ')}"
    return " ".join(words.split()), runs.share(cell, role, site)
