"""The numbers of a study by cell and seed, at the rate chosen on dev."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

from pandas import DataFrame

from mecheval.core.spec import Spec
from mecheval.interventions.verdict import UNSOLVED
from mecheval.metrics.statistics import Seeds
from mecheval.report import labels as names
from mecheval.report.study import Study
from mecheval.report.tables import Reading, at_chosen, behaviour

SIZES = ("pairs", "vocab", "max_len")  # task options that a scale sets
LAYER_1 = "blocks.1.block_in"


@dataclass(frozen=True)
class Cell:
    """Runs of an architecture on a task at any size; they differ in rate and seed.

    Without a `width` they are the widest ones.
    """

    architecture: str
    task: str = "recall"
    layers: int = 2
    width: int | None = None

    def __str__(self) -> str:
        parts = [names.architecture(self.architecture)]
        parts += [f"d = {self.width}"] if self.width else []
        parts += [f"{self.layers} layer{'s' * (self.layers > 1)}"] if self.layers != 2 else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Evidence:
    """The numbers of a study that claims read."""

    study: Study

    def accuracy(self, cell: Cell, split: str = "test") -> Seeds:
        return self._seeds(cell, behaviour(split=split))

    def likelihood(self, cell: Cell, condition: str) -> Seeds:
        """Return the likelihood of the right answer with a clean or a corrupt key."""
        return self._seeds(cell, Reading(panel="", condition=condition))

    def share(self, cell: Cell, role: str, site: str = LAYER_1, split: str = "test") -> Seeds:
        """Return the restored share; a run that loses nothing by the corruption has none."""
        return self._seeds(cell, _restored(role, site, split))

    def share_of_runs(self, cell: Cell, role: str, site: str = LAYER_1) -> Mapping[str, float]:
        """Return the share by the key of each run that solves the task, of any width and rate."""
        rows = _restored(role, site, "test").of(_of(self.study.rows, cell, every_width=True))
        solved = {key for key, entry in self.study.facts.items() if _solved(entry["verdict"])}
        rows = rows[rows["key"].isin(solved)]
        return dict(zip(rows["key"].tolist(), rows["value"].tolist(), strict=True))

    def mechanisms(self, cell: Cell) -> list[str]:
        """Return the mechanism of each seed that has a verdict."""
        verdicts = [self.study.facts[key]["verdict"] for key in _of(self._runs, cell)["key"]]
        return [verdict["mechanism"] for verdict in verdicts if verdict]

    def widths(self, cell: Cell) -> list[Cell]:
        """Return the cell at every width that was trained, from narrow to wide."""
        runs = _of(self.study.runs, cell, every_width=True)
        return [replace(cell, width=int(width)) for width in sorted(set(runs["model.d_model"]))]

    def _seeds(self, cell: Cell, reading: Reading) -> Seeds:
        rows = reading.of(_of(self._rows, cell))
        return dict(zip(rows["seed"].astype(int).tolist(), rows["value"].tolist(), strict=True))

    @cached_property
    def _rows(self) -> DataFrame:
        return at_chosen(self.study, self.study.rows)

    @cached_property
    def _runs(self) -> DataFrame:
        return at_chosen(self.study, self.study.runs[self.study.runs["outcome"] == "done"])


def _restored(role: str, site: str, split: str) -> Reading:
    place = {"site": site, "role": role, "split": split}
    return Reading(panel="", metric="share", condition="restored", **place)


def _solved(verdict: Mapping[str, object] | None) -> bool:
    return verdict is not None and verdict["mechanism"] != UNSOLVED


def _of(table: DataFrame, cell: Cell, every_width: bool = False) -> DataFrame:
    """Select the lines of a cell."""
    table = table[table["model.architecture"] == cell.architecture]
    table = table[table["model.layers"] == cell.layers]
    table = table[table["task"].map(_sizeless) == _sizeless(cell.task)]
    if every_width:
        return table
    width = cell.width or table["model.d_model"].max()
    return table[table["model.d_model"] == width]


@cache  # few tasks, in a great many rows
def _sizeless(task: str) -> str:
    """Return a task without its size."""
    spec = Spec.parse(task)
    options = {name: value for name, value in spec.options.items() if name not in SIZES}
    return str(Spec(spec.name, options))
