"""A folder of runs as a report reads it: the plan, the outcomes and every number."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pandas import DataFrame, Series

from mecheval.core.errors import InvalidInput
from mecheval.results.archive import Facts
from mecheval.results.plan import Plan
from mecheval.results.table import COLUMNS, Results
from mecheval.runs.pending import STOPPED

OUTCOMES = ("done", "diverged", "failed", "missing")
_CELL = ("task", "model.architecture", "model.d_model", "model.layers")
CELL = (*_CELL, "setting")  # among whose rates and seeds is chosen
FIELDS = (*_CELL, "train.lr", "seed")
_OUTCOME = {"done": "done", "diverged": "diverged"}
_OUTCOME |= dict.fromkeys(("waiting", "running", STOPPED), "missing")


@dataclass(frozen=True)
class Study:
    """A sweep, a kept study or any folder of runs, as tables.

    `runs` has a line for each planned experiment, or for each run where there is no plan. Its
    `setting` says what else differs between runs of the same task and model, such as `steps=500`;
    mostly nothing. `facts` are verdict and provenance of each finished run, by its key.
    """

    folder: Path
    recipe: str | None
    scale: str | None
    runs: DataFrame
    rows: DataFrame
    curves: DataFrame
    facts: Facts = field(default_factory=dict)
    damaged: tuple[str, ...] = ()  # runs that no table has numbers of, each with the reason

    @classmethod
    def read(cls, folder: str | Path) -> "Study":
        """Read a folder; refuse one without runs, or with runs that are not of its sweep."""
        results = Results(Path(folder))
        plan = Plan.read(results.folder)
        records = results.runs()
        if not records:
            raise InvalidInput(f"DIR={str(folder)!r} has no runs")
        if plan:
            plan.check_runs(results)
        runs = _runs(plan.states(results) if plan else records)
        settings = dict(zip(runs["key"], runs["setting"], strict=True))
        rows, curves = (_table(results, name, runs) for name in ("rows", "curves"))
        rows = rows.assign(setting=rows["key"].map(settings))
        curves = curves.assign(setting=curves["key"].map(settings))
        for name in ("corrupted", "site", "role"):
            rows[name] = rows[name].fillna("").astype(str)
        recipe, scale = (plan.recipe, plan.scale) if plan else (None, None)
        tables, damaged = (runs, rows, curves, results.facts()), tuple(results.damaged())
        return cls(Path(folder), recipe, scale, *tables, damaged)

    @classmethod
    def joined(cls, studies: Sequence["Study"]) -> "Study":
        """Return studies of the same scale as one, with the folder and recipe of the first."""
        tables = {}
        for name in ("runs", "rows", "curves"):
            tables[name] = _joined([getattr(study, name) for study in studies])
        facts = {key: entry for study in studies for key, entry in study.facts.items()}
        damaged = tuple(line for study in studies for line in study.damaged)
        return replace(studies[0], **tables, facts=facts, damaged=damaged)

    @property
    def counts(self) -> dict[str, int]:
        """Count the runs by outcome, zeros included."""
        return outcomes(self.runs["outcome"])

    @property
    def partial(self) -> bool:
        return self.counts["failed"] + self.counts["missing"] > 0

    @property
    def counted(self) -> str:
        """Return the counts in words, for titles."""
        counts = {name: n for name, n in self.counts.items() if n or name == "done"}
        return ", ".join(f"{n} {name}" for name, n in counts.items())

    def field(self, name: str) -> list[Any]:
        """Return the different values of a field, in the order of the plan."""
        values = self.runs[name] if name in self.runs else Series(dtype=object)
        return list(dict.fromkeys(values.dropna()))


def outcomes(column: Series) -> dict[str, int]:
    """Count the values of a column of outcomes."""
    return {name: int((column == name).sum()) for name in OUTCOMES}


def _joined(tables: Sequence[DataFrame]) -> DataFrame:
    """Join tables line by line, since columns that only some have would lose their types."""
    filled = [table for table in tables if len(table)] or list(tables[:1])
    columns = list(dict.fromkeys(name for table in filled for name in table.columns))
    lines = [line for table in filled for line in table.to_dict("records")]
    return DataFrame(lines, columns=columns)


def _table(results: Results, name: str, runs: DataFrame) -> DataFrame:
    """Return a table with all fields that figures use, also if no run is finished."""
    table = results.df(name, dotted=True)
    columns = dict.fromkeys((*table.columns, *COLUMNS[name], *FIELDS))
    table = table.reindex(columns=list(columns))
    if table.empty:  # empty columns are floats, which cannot be merged with text
        table = table.astype({field: runs[field].dtype for field in FIELDS})
    return table


def _runs(states: Sequence[dict[str, Any]]) -> DataFrame:
    runs = DataFrame(list(states))
    columns = dict.fromkeys((*COLUMNS["runs"], *FIELDS, *runs.columns))
    runs = runs.reindex(columns=list(columns))
    outcome = [_OUTCOME.get(status, "failed") for status in runs["status"]]
    return runs.assign(outcome=outcome, setting=_settings(runs))


def _settings(runs: DataFrame) -> Series:
    """Describe the fields that differ within a cell but are neither rate nor seed."""
    settings = Series("", index=runs.index)
    sections = [name for name in runs if name.startswith(("train.", "model.", "eval."))]
    others = [name for name in sections if name not in FIELDS]
    for _, group in runs.groupby(list(_CELL)):
        differ = []
        for name in others:
            # runs of an older version lack some fields of `eval`
            if group[name].nunique(dropna=name.startswith("eval.")) > 1:
                differ.append(name)
        if differ:
            texts = [_texts(values) for values in group[differ].to_dict("records")]
            settings[group.index] = texts
    return settings


def _texts(values: Mapping[str, Any]) -> str:
    return ", ".join(_setting(name, value) for name, value in values.items() if value == value)


def _setting(name: str, value: Any) -> str:
    text = f"{value:g}" if isinstance(value, int | float) else str(value)
    return f"{name.partition('.')[2]}={text}"
