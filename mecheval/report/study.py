"""A folder of runs as a report sees it: what was planned, what became of it, and every number."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pandas import DataFrame, Series

from mecheval.core.errors import InvalidInput
from mecheval.results.archive import Facts
from mecheval.results.plan import Plan
from mecheval.results.table import COLUMNS, Results

OUTCOMES = ("done", "diverged", "failed", "missing")
_CELL = ("task", "model.architecture", "model.d_model", "model.layers")
CELL = (*_CELL, "setting")  # among whose rates and seeds is chosen
FIELDS = (*_CELL, "train.lr", "seed")
_OUTCOME = {"done": "done", "diverged": "diverged", "waiting": "missing", "running": "missing"}


@dataclass(frozen=True)
class Study:
    """`runs` has a line for each planned experiment, or for each run where there is no plan; `outcome` is its end.

    `setting` says what else differs between runs of the same task and model, `steps=500`; mostly nothing. `facts` are
    verdict and provenance of each finished run, by its key.
    """

    folder: Path
    recipe: str | None
    scale: str | None
    runs: DataFrame
    rows: DataFrame
    curves: DataFrame
    facts: Facts = field(default_factory=dict)

    @classmethod
    def read(cls, folder: str | Path) -> "Study":
        """Refuses a folder without runs, and one with runs that do not belong to its sweep."""
        results = Results(Path(folder))
        plan = Plan.read(results.folder)
        found = results.runs()
        if not found:
            raise InvalidInput(f"DIR={str(folder)!r} has no runs")
        if plan:
            planned = {experiment["key"] for experiment in plan.experiments}
            others = [run["folder"] for run in found if run["key"] and run["key"] not in planned]
            if others:
                raise InvalidInput(
                    f"DIR={str(folder)!r} has {len(others)} runs that are not of its sweep {plan.recipe} at scale "
                    f"{plan.scale}, the first {Path(others[0]).name!r}; they must be in another folder"
                )
        runs = _runs(plan.states(results) if plan else found)
        settings = dict(zip(runs["key"], runs["setting"], strict=True))
        rows, curves = (_table(results, name, runs) for name in ("rows", "curves"))
        rows, curves = (table.assign(setting=table["key"].map(settings)) for table in (rows, curves))
        for name in ("corrupted", "site", "role"):
            rows[name] = rows[name].fillna("").astype(str)
        recipe, scale = (plan.recipe, plan.scale) if plan else (None, None)
        return cls(Path(folder), recipe, scale, runs, rows, curves, results.facts())

    @classmethod
    def joined(cls, studies: Sequence["Study"]) -> "Study":
        """As one, of the same scale, in the folder and by the name of the first."""
        tables = {name: _joined([getattr(study, name) for study in studies]) for name in ("runs", "rows", "curves")}
        facts = {key: found for study in studies for key, found in study.facts.items()}
        return replace(studies[0], **tables, facts=facts)

    @property
    def counts(self) -> dict[str, int]:
        """Runs by outcome, those that are nought included."""
        return outcomes(self.runs["outcome"])

    @property
    def partial(self) -> bool:
        return self.counts["failed"] + self.counts["missing"] > 0

    @property
    def counted(self) -> str:
        """In words, for titles."""
        return ", ".join(f"{n} {name}" for name, n in self.counts.items() if n or name == "done")

    def field(self, name: str) -> list[Any]:
        """The different values of a field, in the order of the plan."""
        values = self.runs[name] if name in self.runs else Series(dtype=object)
        return list(dict.fromkeys(values.dropna()))


def outcomes(found: Series) -> dict[str, int]:
    return {name: int((found == name).sum()) for name in OUTCOMES}


def _joined(tables: Sequence[DataFrame]) -> DataFrame:
    """By their lines, since columns that only some have would lose their kinds."""
    filled = [table for table in tables if len(table)] or list(tables[:1])
    columns = list(dict.fromkeys(name for table in filled for name in table.columns))
    return DataFrame([line for table in filled for line in table.to_dict("records")], columns=columns)


def _table(results: Results, name: str, runs: DataFrame) -> DataFrame:
    """With the fields that every figure asks for, though no run may have been finished."""
    table = results.df(name)
    table = table.reindex(columns=list(dict.fromkeys((*table.columns, *COLUMNS[name], *FIELDS))))
    if table.empty:  # columns of nothing are of floats, which join with no text
        table = table.astype({field: runs[field].dtype for field in FIELDS})
    return table


def _runs(states: Sequence[dict[str, Any]]) -> DataFrame:
    runs = DataFrame(list(states))
    runs = runs.reindex(columns=list(dict.fromkeys((*COLUMNS["runs"], *FIELDS, *runs.columns))))
    outcome = [_OUTCOME.get(status, "failed") for status in runs["status"]]
    return runs.assign(outcome=outcome, setting=_settings(runs))


def _settings(runs: DataFrame) -> Series:
    """Fields that differ within a cell but are neither rate nor seed. Runs of an older version lack some of `eval`."""
    found = Series("", index=runs.index)
    others = [name for name in runs if name.startswith(("train.", "model.", "eval.")) and name not in FIELDS]
    for _, group in runs.groupby(list(_CELL)):
        differ = [name for name in others if group[name].nunique(dropna=name.startswith("eval.")) > 1]
        for index, values in group[differ].iterrows():
            found[index] = ", ".join(_said(name, value) for name, value in values.items() if value == value)
    return found


def _said(name: str, value: Any) -> str:
    return (
        f"{name.partition('.')[2]}={value:g}" if isinstance(value, int | float) else f"{name.partition('.')[2]}={value}"
    )
