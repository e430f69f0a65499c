"""The numbers behind every figure: the rate chosen on dev, and what test says at that rate.

A cell is a task, an architecture, a width and a number of layers. Among its rates the one with the best mean accuracy
on dev over seeds is chosen (a diverged run counts as 0; ties go to the lower loss, then to the lower rate). Test is
never asked. The number reported is the mean over the seeds at that rate. Its 95 % interval: with one seed that over
documents; with several, seeds drawn again with replacement, each with the spread of its own documents.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from pandas import DataFrame, Series, concat

from mecheval.report.study import CELL, OUTCOMES, Study, outcomes

RESAMPLES = 2000
NUMBERS = ("value", "low", "high", "n", "seeds", *OUTCOMES, "published", "difference", "why")

# published numbers of a table's lines, NaN where there is none, and the reasons why not
Beside = Callable[[Study, DataFrame], tuple[Sequence[float], Sequence[str]]]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Which number is read off each run, and the panel it is shown in."""

    panel: str
    metric: str = "likelihood"
    condition: str = "clean"
    corrupted: str = "key"
    site: str = ""
    role: str = ""
    split: str = "test"

    def of(self, rows: DataFrame) -> DataFrame:
        """At the end of training; a run may have been measured on its way, too."""
        mine = np.ones(len(rows), dtype=bool)
        for name, value in asdict(self).items():
            if name != "panel":
                mine &= (rows[name] == value).to_numpy(dtype=bool)
        found = rows[mine]
        return found[found["step"] == found.groupby("key")["step"].transform("max")]


def behaviour(metric: str = "accuracy", split: str = "test", panel: str = "") -> Reading:
    return Reading(panel=panel, metric=metric, split=split, corrupted="")


def chosen(study: Study) -> DataFrame:
    """The rate of each cell, and its mean accuracy on dev."""
    keys = study.runs.set_index("key")
    found = {m: behaviour(m, "dev").of(study.rows).set_index("key")["value"] for m in ("accuracy", "loss")}
    runs = keys.assign(accuracy=found["accuracy"], loss=found["loss"])
    runs.loc[runs["outcome"] == "diverged", ["accuracy", "loss"]] = [0.0, np.inf]
    runs = runs.dropna(subset=["accuracy"])
    means = runs.groupby([*CELL, "train.lr"], as_index=False)[["accuracy", "loss"]].mean()
    means = means.sort_values(["accuracy", "loss", "train.lr"], ascending=[False, True, True], kind="stable")
    return means.drop_duplicates(list(CELL))[[*CELL, "train.lr", "accuracy"]]


def choice(study: Study) -> str:
    """How the rates of the numbers were found, in a sentence."""
    several = (study.runs.groupby(list(CELL))["train.lr"].nunique() > 1).any()
    return "The rate of each number was chosen on dev." if several else "One rate was tried in each cell."


def at_chosen(study: Study, rows: DataFrame) -> DataFrame:
    """The rows of the runs with the chosen rates."""
    return rows.merge(chosen(study)[[*CELL, "train.lr"]], on=[*CELL, "train.lr"])


def read(
    study: Study,
    readings: Sequence[Reading],
    *,
    beside: Beside | None = None,
    every_rate: bool = False,
) -> DataFrame:
    """Return a line for each reading and cell, also of cells that were not measured.

    With `every_rate` there is a line for each rate, too. `beside` gives the published number of
    each line, or the reason why it has none.
    """
    by = [*CELL, "train.lr"] if every_rate else list(CELL)
    cells = _counted(study, by)
    if not every_rate:
        cells = cells.merge(chosen(study)[[*CELL, "train.lr"]], on=by, how="left")
    rows = study.rows if every_rate else at_chosen(study, study.rows)
    parts = []
    for reading in readings:
        part = cells.merge(averaged(reading.of(rows), by), on=by, how="left")
        parts.append(part.assign(**asdict(reading)))
    table = concat(parts, ignore_index=True)
    table["state"] = [_state(line) for line in table.to_dict("records")]
    published, why = beside(study, table) if beside else ([np.nan] * len(table), [""] * len(table))
    table = table.assign(published=np.array(published, dtype=float))
    return table.assign(difference=table["value"] - table["published"], why=why)


def averaged(rows: DataFrame, by: Sequence[str]) -> DataFrame:
    """Over seeds: value, interval, n of a seed's documents and seeds."""
    found = [
        {**dict(zip(by, _names(names), strict=True)), **_mean(group)}
        for names, group in rows.groupby(list(by), sort=False)
    ]
    return DataFrame(found, columns=[*by, "value", "low", "high", "n", "seeds"])


def interval(values: Sequence[float], lows: Sequence[float], highs: Sequence[float]) -> tuple[float, float]:
    """Of a mean over seeds, each with the interval over its documents."""
    mean, low, high = (np.asarray(x, dtype=float) for x in (values, lows, highs))
    seeds = len(mean)
    if seeds == 1:
        return float(low[0]), float(high[0])
    rng = np.random.default_rng(seeds)
    drawn = rng.integers(seeds, size=(RESAMPLES, seeds))
    spread = (high - low) / (2 * 1.96)
    means = (mean[drawn] + spread[drawn] * rng.standard_normal(drawn.shape)).mean(axis=1)
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def _mean(group: DataFrame) -> dict[str, float]:
    low, high = interval(*(group[name].tolist() for name in ("value", "low", "high")))
    value = float(group["value"].mean())
    if group["metric"].iloc[0] in ("accuracy", "likelihood"):
        low, high = max(low, 0.0), min(high, 1.0)
    return {"value": value, "low": low, "high": high, "n": int(group["n"].min()), "seeds": len(group)}


def _counted(study: Study, by: Sequence[str]) -> DataFrame:
    """Every cell that was planned, with the number of its runs by outcome."""
    runs = study.runs.dropna(subset=list(by))
    found = [
        {**dict(zip(by, _names(names), strict=True)), **outcomes(group["outcome"])}
        for names, group in runs.groupby(list(by), sort=False)
    ]
    return DataFrame(found, columns=[*by, *OUTCOMES])


def _names(names: object) -> tuple[object, ...]:
    return names if isinstance(names, tuple) else (names,)


def _state(line: Mapping[str, Any]) -> str:
    """Of a cell: measured, or why it is not."""
    if line["value"] == line["value"]:
        return "measured"
    if line["done"]:
        return "not measured"
    return "missing" if line["missing"] else "diverged" if not line["failed"] else "failed"


def ordered(values: Series) -> list[Any]:
    """Each once, as they come."""
    return list(dict.fromkeys(values))
