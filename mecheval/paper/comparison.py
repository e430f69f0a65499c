"""The paper's numbers beside ours where the settings are the same, and the reason where not."""

from collections.abc import Mapping, Sequence
from typing import Any

from pandas import DataFrame

from mecheval.paper.published import published, setting_of, why_not_comparable
from mecheval.report.study import CELL, Study
from mecheval.report.tables import Beside

LOST = "they could not be recovered as numbers"
_SAME = {"architecture": "model.architecture", "layers": "model.layers", "d_model": "model.d_model"}
_SAME |= {name: name for name in ("metric", "condition", "site", "role", "split")}


def beside(figure: str, every_rate: bool = False) -> Beside:
    """Return the function that gives `read` the published numbers of a figure, such as "12a"."""

    def compare(study: Study, table: DataFrame) -> tuple[Sequence[float], Sequence[str]]:
        numbers = _numbers(figure, every_rate)
        runs = {tuple(run[name] for name in CELL): run for run in study.runs.to_dict("records")}
        values, reasons = [], []
        for line in table.to_dict("records"):
            reason = "" if numbers else LOST
            chosen = line["train.lr"] == line["train.lr"]  # not NaN
            if numbers and chosen:
                reason = _why_not(runs[tuple(line[name] for name in CELL)], line["train.lr"])
            known = chosen and not reason
            values.append(numbers.get(_place(line, every_rate), nan) if known else nan)
            reasons.append(reason)
        return values, reasons

    nan = float("nan")
    return compare


def _numbers(figure: str, every_rate: bool) -> dict[tuple[Any, ...], float]:
    table = published(figure)
    table = table[(table["lr"].notna() == every_rate) & (table["statistic"] == "value")]
    table = table.assign(**{name: table[name].fillna("") for name in ("site", "role")})
    rates = table["lr"] if every_rate else [None] * len(table)
    places = zip(table["setting"], rates, *(table[name] for name in _SAME), strict=True)
    return dict(zip(places, table["value"], strict=True))


def _place(line: Mapping[str, Any], every_rate: bool) -> tuple[Any, ...]:
    rate = line["train.lr"] if every_rate else None
    return (setting_of(line["task"]), rate, *(line[name] for name in _SAME.values()))


def _why_not(run: Mapping[str, Any], rate: float) -> str:
    fields = {name: value for name, value in run.items() if value == value}
    return why_not_comparable({**fields, "train.lr": rate}) or ""
