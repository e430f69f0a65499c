"""The numbers of a study by cell and seed, at the rate chosen on dev."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from pandas import DataFrame

from mecheval.core.spec import Spec
from mecheval.metrics.statistics import Bounds
from mecheval.report import labels as names
from mecheval.report.study import Study
from mecheval.report.tables import Reading, at_chosen, behaviour, bounds

SIZES = ("pairs", "vocab", "max_len")  # task options that a scale sets
Seeds = Mapping[int, float]


@dataclass(frozen=True)
class Cell:
    """The widest runs of an architecture on a task at any size; they differ in rate and seed."""

    architecture: str
    task: str = "recall"
    layers: int = 2

    def __str__(self) -> str:
        name = names.architecture(self.architecture)
        layers = f", {self.layers} layer{'s' * (self.layers > 1)}"
        return name if self.layers == 2 else name + layers


@dataclass(frozen=True)
class Evidence:
    """The numbers of a study that claims read."""

    study: Study

    def accuracy(self, cell: Cell, split: str = "test") -> Seeds:
        return self._seeds(cell, behaviour(split=split))

    def likelihood(self, cell: Cell, condition: str) -> Seeds:
        """Return the likelihood of the right answer with a clean or a corrupt key."""
        return self._seeds(cell, Reading(panel="", condition=condition))

    def share(self, cell: Cell, role: str, site: str = "blocks.1.block_in") -> Seeds:
        """Return the restored share; a run that loses nothing by the corruption has none."""
        return self._seeds(cell, _restored(role, site))

    def share_bounds(self, cell: Cell, role: str, site: str = "blocks.1.block_in") -> Bounds:
        """Return what is possible for the mean of `share`."""
        return bounds(_restored(role, site).of(_of(self._rows, cell)))

    def mechanisms(self, cell: Cell) -> list[str]:
        """Return the mechanism of each seed that has a verdict."""
        verdicts = [self.study.facts[key]["verdict"] for key in _of(self._runs, cell)["key"]]
        return [verdict["mechanism"] for verdict in verdicts if verdict]

    def _seeds(self, cell: Cell, reading: Reading) -> Seeds:
        rows = reading.of(_of(self._rows, cell))
        return dict(zip(rows["seed"].astype(int).tolist(), rows["value"].tolist(), strict=True))

    @cached_property
    def _rows(self) -> DataFrame:
        return at_chosen(self.study, self.study.rows)

    @cached_property
    def _runs(self) -> DataFrame:
        return at_chosen(self.study, self.study.runs[self.study.runs["outcome"] == "done"])


def _restored(role: str, site: str) -> Reading:
    return Reading(panel="", metric="share", condition="restored", site=site, role=role)


def _of(table: DataFrame, cell: Cell) -> DataFrame:
    """Select the lines of a cell."""
    table = table[table["model.architecture"] == cell.architecture]
    table = table[table["model.layers"] == cell.layers]
    table = table[table["task"].map(_sizeless) == _sizeless(cell.task)]
    return table[table["model.d_model"] == table["model.d_model"].max()]


@cache  # few tasks, in a great many rows
def _sizeless(task: str) -> str:
    """Return a task without its size."""
    spec = Spec.parse(task)
    options = {name: value for name, value in spec.options.items() if name not in SIZES}
    return str(Spec(spec.name, options))
