"""The paper's numbers beside ours, where the settings are the same, and the reason where they are not."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from pandas import DataFrame

from mecheval.paper.published import published, setting_of, why_not_comparable
from mecheval.report.study import CELL, Study

LOST = "they could not be recovered as numbers"
_SAME = {"architecture": "model.architecture", "layers": "model.layers", "d_model": "model.d_model"}
_SAME |= {name: name for name in ("metric", "condition", "site", "role", "split")}


def compared(study: Study, table: DataFrame, figure: str | None, every_rate: bool) -> DataFrame:
    """With the columns published, difference (ours less theirs) and why (they are not compared)."""
    values, reasons = np.full(len(table), np.nan), [""] * len(table)
    theirs = _theirs(figure, every_rate) if figure else {}
    runs = {tuple(run[name] for name in CELL): run for run in study.runs.to_dict("records")}
    for i, line in enumerate(table.to_dict("records")):
        if figure and not theirs:
            reasons[i] = LOST
        elif figure and line["train.lr"] == line["train.lr"]:  # there is a rate that was chosen
            reasons[i] = _why(runs[tuple(line[name] for name in CELL)], line["train.lr"])
            values[i] = np.nan if reasons[i] else theirs.get(_place(line, every_rate), np.nan)
    return table.assign(published=values, difference=table["value"] - values, why=reasons)


def _theirs(figure: str, every_rate: bool) -> dict[tuple[Any, ...], float]:
    found = published(figure)
    mine = found[(found["lr"].notna() == every_rate) & (found["statistic"] == "value")]
    mine = mine.assign(**{name: mine[name].fillna("") for name in ("site", "role")})
    rates = mine["lr"] if every_rate else [None] * len(mine)
    places = zip(mine["setting"], rates, *(mine[name] for name in _SAME), strict=True)
    return dict(zip(places, mine["value"], strict=True))


def _place(line: Mapping[str, Any], every_rate: bool) -> tuple[Any, ...]:
    rate = line["train.lr"] if every_rate else None
    return (setting_of(line["task"]), rate, *(line[name] for name in _SAME.values()))


def _why(run: Mapping[str, Any], rate: float) -> str:
    fields = {name: value for name, value in run.items() if value == value}
    return why_not_comparable({**fields, "train.lr": rate}) or ""
