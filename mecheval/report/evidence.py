"""The numbers of a study by cell and seed: at the rate that dev chose, on test."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from pandas import DataFrame

from mecheval.core.spec import Spec
from mecheval.metrics.statistics import Bounds
from mecheval.report import labels as names
from mecheval.report.study import Study
from mecheval.report.tables import Reading, at_chosen, behaviour, bounds

SIZES = ("pairs", "vocab", "max_len")  # options of a task that a scale sets
Seeds = Mapping[int, float]


@dataclass(frozen=True)
class Cell:
    """Runs that differ in rate and seed alone, of a task at any size: the widest there are."""

    architecture: str
    task: str = "recall"
    layers: int = 2

    def __str__(self) -> str:
        parts = [names.architecture(self.architecture)]
        parts += [f"{self.layers} layer{'s' if self.layers > 1 else ''}"] if self.layers != 2 else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Evidence:
    """What claims are asked of."""

    study: Study

    def accuracy(self, cell: Cell, split: str = "test") -> Seeds:
        return self._seeds(cell, behaviour(split=split))

    def likelihood(self, cell: Cell, condition: str) -> Seeds:
        """Of the right answer, with a clean or a corrupt key."""
        return self._seeds(cell, Reading(panel="", condition=condition))

    def share(self, cell: Cell, role: str, site: str = "blocks.1.block_in") -> Seeds:
        """Restored at a site and a role. A run that loses nothing by the corruption has none."""
        return self._seeds(cell, _restored(role, site))

    def share_bounds(self, cell: Cell, role: str, site: str = "blocks.1.block_in") -> Bounds:
        """Return what is possible for the mean of `share`."""
        return bounds(_restored(role, site).of(_of(self._rows, cell)))

    def mechanisms(self, cell: Cell) -> list[str]:
        """One for each seed that was judged."""
        said = [self.study.facts[key]["verdict"] for key in _of(self._runs, cell)["key"]]
        return [verdict["mechanism"] for verdict in said if verdict]

    def _seeds(self, cell: Cell, reading: Reading) -> Seeds:
        found = reading.of(_of(self._rows, cell))
        return dict(zip(found["seed"].astype(int).tolist(), found["value"].tolist(), strict=True))

    @cached_property
    def _rows(self) -> DataFrame:
        return at_chosen(self.study, self.study.rows)

    @cached_property
    def _runs(self) -> DataFrame:
        return at_chosen(self.study, self.study.runs[self.study.runs["outcome"] == "done"])


def _restored(role: str, site: str) -> Reading:
    return Reading(panel="", metric="share", condition="restored", site=site, role=role)


def _of(table: DataFrame, cell: Cell) -> DataFrame:
    mine = (table["model.architecture"] == cell.architecture) & (table["model.layers"] == cell.layers)
    found = table[mine & (table["task"].map(_sizeless) == _sizeless(cell.task))]
    return found[found["model.d_model"] == found["model.d_model"].max()]


@cache  # few tasks, in a great many rows
def _sizeless(task: str) -> str:
    spec = Spec.parse(task)
    return str(Spec(spec.name, {name: value for name, value in spec.options.items() if name not in SIZES}))
