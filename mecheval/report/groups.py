"""Runs in groups that differ in one field: alike in all others, each read at its cell's chosen rate.

A diverged run counts as 0 when the rate is chosen, and is no number afterwards, as in every figure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pandas import DataFrame, concat

from mecheval.core.errors import InvalidInput
from mecheval.core.options import REQUIRED, did_you_mean
from mecheval.report import labels as names
from mecheval.report.study import CELL, OUTCOMES, Study
from mecheval.report.tables import chosen
from mecheval.runs.experiment import fields_of

_CELL = CELL[:-1]  # without the setting
_NO_SETTING = (*_CELL, "train.lr", "seed")
_MEASURED = ("key", "metric", "condition", "split", "step", "corrupted", "site", "role")
Groups = Mapping[str, DataFrame]  # runs by what they have in the field


@dataclass(frozen=True)
class Grouped:
    """`runs` of any outcome, at their rates; `others` are the fields in which runs must be alike to be compared."""

    study: Study
    field: str
    others: Sequence[str]
    runs: DataFrame

    @classmethod
    def read(cls, folders: Sequence[str | Path], by: str) -> "Grouped":
        """Refuses a field that is none or has one value."""
        field = field_named(by)
        study = together([Study.read(folder) for folder in folders])
        runs = _at_chosen(study, field)
        if len(values := runs[field].unique()) < 2:
            has = f"all {len(runs)} runs have {field}={plain(values[0])}" if len(values) else "no run has it"
            raise InvalidInput(f"by={by!r} must have at least 2 values: {has}")
        return cls(study, field, [name for name in (*_CELL, *_varied(study.runs)) if name != field], runs)

    def settings(self) -> Iterator[tuple[dict[str, Any], Groups]]:
        """The other fields with their values and, as `setting`, in words; and the groups that have them."""
        for values, runs in self.runs.groupby(list(self.others), dropna=False):
            found = sorted(runs.groupby(self.field, dropna=False), key=lambda group: self._place(group[0]))
            alike = dict(zip(self.others, values, strict=True))
            yield {"setting": setting(alike), **alike}, {plain(value): own for value, own in found}

    def _place(self, value: Any) -> tuple[Any, ...]:
        return names.order(value) if self.field == "model.architecture" else (isinstance(value, str), value)


def field_named(by: str) -> str:
    """`architecture` is short for `model.architecture`."""
    known = fields_of()
    if by == "seed":
        raise InvalidInput("by='seed' must be another field: seeds are what all others are compared over")
    found = [by] if by in known else [name for name in known if name.endswith(f".{by}")]
    if not found:
        raise InvalidInput(f"by={by!r}: no such field{did_you_mean(by, known.keys() - {'seed'})}")
    if len(found) > 1:
        raise InvalidInput(f"by={by!r} must be one of {', '.join(found)}")
    return found[0]


def together(studies: Sequence[Study]) -> Study:
    """As one, each experiment once. A field that an older version did not know has its default."""
    runs = concat([study.runs for study in studies], ignore_index=True)
    best = runs.sort_values("outcome", key=lambda found: found.map(OUTCOMES.index), kind="stable")
    runs = best[best["key"].isna() | ~best.duplicated("key")].sort_index()
    runs = runs.reindex(columns=list(dict.fromkeys((*runs.columns, *fields_of()))))
    for name, option in fields_of().items():
        if option.default not in (None, REQUIRED):
            runs[name] = runs[name].where(runs[name].notna(), option.default)
    varied = _varied(runs)
    runs["setting"] = [setting(line) for line in runs[varied].to_dict("records")]
    rows = concat([study.rows for study in studies if len(study.rows)] or [studies[0].rows], ignore_index=True)
    recipe, scale = (studies[0].recipe, studies[0].scale) if len(studies) == 1 else (None, None)
    return replace(
        Study.joined(studies), recipe=recipe, scale=scale, runs=runs, rows=rows.drop_duplicates(list(_MEASURED))
    )


def setting(fields: Mapping[str, Any]) -> str:
    """In words: `recall:pairs=4 · attention · d_model=64`."""
    bare = ("task", "model.architecture")
    return " · ".join(plain(v) if n in bare else f"{n.partition('.')[2]}={plain(v)}" for n, v in fields.items())


def plain(value: Any) -> str:
    if value is None or value != value:
        return "left out"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _varied(runs: DataFrame) -> list[str]:
    """Fields that make settings: with several values, and neither of a cell nor rate or seed."""
    known = runs.dropna(subset=list(_CELL))
    return [name for name in fields_of() if name not in _NO_SETTING and known[name].nunique(dropna=False) > 1]


def _at_chosen(study: Study, field: str) -> DataFrame:
    """With all runs of cells that have no rate to choose, and all of all where rates are what is compared."""
    runs = study.runs.dropna(subset=list(_CELL))
    if field == "train.lr":
        return runs
    rates = chosen(study)[[*CELL, "train.lr"]].rename(columns={"train.lr": "rate"})
    found = runs.merge(rates, on=list(CELL), how="left")
    return found[found["rate"].isna() | (found["rate"] == found["train.lr"])]
