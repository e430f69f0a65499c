"""Groups of runs that differ in one field and are alike in all others, at their chosen rates.

A diverged run counts as 0 when the rate is chosen and has no number afterwards, as in figures.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pandas import DataFrame, concat

from mecheval.core.errors import InvalidInput
from mecheval.core.options import REQUIRED, did_you_mean
from mecheval.report import labels
from mecheval.report.study import CELL, OUTCOMES, Study
from mecheval.report.tables import chosen
from mecheval.runs.experiment import fields_of

_CELL = CELL[:-1]  # without the setting
_NO_SETTING = (*_CELL, "train.lr", "seed")
_MEASURED = ("key", "metric", "condition", "split", "step", "corrupted", "site", "role")
Groups = Mapping[str, DataFrame]  # runs by their value in the field


@dataclass(frozen=True)
class Grouped:
    """`runs` of any outcome at their rates; `others` are the fields in which runs must be alike."""

    study: Study
    field: str
    others: Sequence[str]
    runs: DataFrame

    @classmethod
    def read(cls, folders: Sequence[str | Path], by: str) -> "Grouped":
        """Read all folders as one; reject a field that does not exist or has one value."""
        field = field_named(by)
        study = together([Study.read(folder) for folder in folders])
        runs = _at_chosen(study, field)
        values = runs[field].unique()
        if len(values) < 2:
            has = "no run has it"
            if len(values):
                has = f"all {len(runs)} runs have {field}={plain(values[0])}"
            raise InvalidInput(f"by={by!r} must have at least 2 values: {has}")
        others = [name for name in (*_CELL, *_varied(study.runs)) if name != field]
        return cls(study, field, others, runs)

    def settings(self) -> Iterator[tuple[dict[str, Any], Groups]]:
        """Yield each setting, as text and by field, with the groups that have it."""
        for values, runs in self.runs.groupby(list(self.others), dropna=False):
            groups = list(runs.groupby(self.field, dropna=False))
            groups.sort(key=lambda group: self._place(group[0]))
            alike = dict(zip(self.others, values, strict=True))
            yield {"setting": setting(alike), **alike}, {plain(name): runs for name, runs in groups}

    def _place(self, value: Any) -> tuple[Any, ...]:
        if self.field == "model.architecture":
            return labels.order(value)
        return isinstance(value, str), value


def field_named(by: str) -> str:
    """Return the full name of a field: `architecture` is short for `model.architecture`."""
    known = fields_of()
    if by == "seed":
        raise InvalidInput("by='seed' must be another field: groups are compared over seeds")
    matches = [by] if by in known else [name for name in known if name.endswith(f".{by}")]
    if not matches:
        raise InvalidInput(f"by={by!r}: no such field{did_you_mean(by, known.keys() - {'seed'})}")
    if len(matches) > 1:
        raise InvalidInput(f"by={by!r} must be one of {', '.join(matches)}")
    return matches[0]


def together(studies: Sequence[Study]) -> Study:
    """Join studies, each experiment once; a field that an older version lacks has its default."""
    runs = concat([study.runs for study in studies], ignore_index=True)
    best = runs.sort_values("outcome", key=lambda o: o.map(OUTCOMES.index), kind="stable")
    runs = best[best["key"].isna() | ~best.duplicated("key")].sort_index()
    runs = runs.reindex(columns=list(dict.fromkeys((*runs.columns, *fields_of()))))
    for name, option in fields_of().items():
        if option.default not in (None, REQUIRED):
            runs[name] = runs[name].where(runs[name].notna(), option.default)
    runs["setting"] = [setting(line) for line in runs[_varied(runs)].to_dict("records")]
    tables = [study.rows for study in studies if len(study.rows)] or [studies[0].rows]
    rows = concat(tables, ignore_index=True).drop_duplicates(list(_MEASURED))
    joined = replace(Study.joined(studies), runs=runs, rows=rows)
    return joined if len(studies) == 1 else replace(joined, recipe=None, scale=None)


def setting(fields: Mapping[str, Any]) -> str:
    """Return fields as text: `recall:pairs=4 · attention · d_model=64`."""
    texts = []
    for name, value in fields.items():
        prefix = "" if name in ("task", "model.architecture") else f"{name.partition('.')[2]}="
        texts.append(f"{prefix}{plain(value)}")
    return " · ".join(texts)


def plain(value: Any) -> str:
    if value is None or value != value:
        return "left out"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _varied(runs: DataFrame) -> list[str]:
    """Return the fields that make settings: with several values, not of a cell, rate or seed."""
    known = runs.dropna(subset=list(_CELL))
    names = [name for name in fields_of() if name not in _NO_SETTING]
    return [name for name in names if known[name].nunique(dropna=False) > 1]


def _at_chosen(study: Study, field: str) -> DataFrame:
    """Select runs at chosen rates; all of a cell without one, and all where rates are compared."""
    runs = study.runs.dropna(subset=list(_CELL))
    if field == "train.lr":
        return runs
    rates = chosen(study)[[*CELL, "train.lr"]].rename(columns={"train.lr": "rate"})
    runs = runs.merge(rates, on=list(CELL), how="left")
    return runs[runs["rate"].isna() | (runs["rate"] == runs["train.lr"])]
