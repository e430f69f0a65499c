"""The numbers behind every figure: the rate chosen on dev, and what test says at that rate.

A cell is a task, an architecture, a width and a number of layers. Among its rates the one with the
best mean accuracy on dev over seeds is chosen (a diverged run counts as 0; ties go to the lower
loss, then to the lower rate); test plays no part in the choice. The number reported is the mean
over the seeds at that rate. Its 95 % interval is over documents with one seed, and Student's over
seeds with several, cut to what is possible for the metric.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from pandas import DataFrame, Series, concat

from mecheval.metrics.statistics import ANY, BOUNDS, Bounds, seed_interval
from mecheval.report.study import CELL, OUTCOMES, Study, outcomes

# published numbers of a table's lines, NaN where there is none, and the reasons why not
Beside = Callable[[Study, DataFrame], tuple[Sequence[float], Sequence[str]]]
# the fields of a reading that select rows: those first that leave the fewest
_NARROWING = ("site", "role", "metric", "condition", "split", "corrupted")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One number of each run, and the panel in which it is drawn."""

    panel: str
    metric: str = "likelihood"
    condition: str = "clean"
    corrupted: str = "key"
    site: str = ""
    role: str = ""
    split: str = "test"

    def of(self, rows: DataFrame) -> DataFrame:
        """Select the row of each run at its last measured step, with `least` and `most` possible.

        A share is (restored − corrupt) / (clean − corrupt) and may leave 0…1, since a restored
        likelihood may be below the corrupt one or above the clean one. But it stays within 0…1
        itself, and so the run's clean and corrupt likelihood bound its share.
        """
        places = np.arange(len(rows))
        for name in _NARROWING:
            same = rows[name].take(places) == getattr(self, name)
            places = places[same.to_numpy(dtype=bool)]
        selected = rows.take(places)
        last = selected.groupby("key")["step"].transform("max")
        selected = selected[selected["step"] == last]
        if self.metric != "share":
            least, most = BOUNDS.get(self.metric, ANY)
            return selected.assign(least=least, most=most)
        clean, corrupt = (self._likelihood(rows, name) for name in ("clean", "corrupt"))
        ends = [clean - 1, clean] if self.condition == "ablated" else [-corrupt, 1 - corrupt]
        least, most = (selected["key"].map(end / (clean - corrupt)) for end in ends)
        return selected.assign(least=least.fillna(-np.inf), most=most.fillna(np.inf))

    def _likelihood(self, rows: DataFrame, condition: str) -> Series:
        end = replace(self, metric="likelihood", condition=condition, site="", role="")
        return end.of(rows).set_index("key")["value"]


def behaviour(metric: str = "accuracy", split: str = "test", panel: str = "") -> Reading:
    return Reading(panel=panel, metric=metric, split=split, corrupted="")


def chosen(study: Study) -> DataFrame:
    """Return the rate of each cell and its mean accuracy on dev."""
    return once(study, "chosen", _choose)


def once(study: Study, name: str, compute: Callable[[Study], DataFrame]) -> DataFrame:
    """Return a table that every figure of a study asks for, computed the first time."""
    tables = vars(study).setdefault("_tables", {})
    if name not in tables:
        tables[name] = compute(study)
    return tables[name].copy()


def _choose(study: Study) -> DataFrame:
    runs = study.runs.set_index("key")
    for metric in ("accuracy", "loss"):
        runs[metric] = behaviour(metric, "dev").of(study.rows).set_index("key")["value"]
    runs.loc[runs["outcome"] == "diverged", ["accuracy", "loss"]] = [0.0, np.inf]
    runs = runs.dropna(subset=["accuracy"])
    means = runs.groupby([*CELL, "train.lr"], as_index=False)[["accuracy", "loss"]].mean()
    by, ascending = ["accuracy", "loss", "train.lr"], [False, True, True]
    best = means.sort_values(by, ascending=ascending, kind="stable").drop_duplicates(list(CELL))
    return best[[*CELL, "train.lr", "accuracy"]]


def choice(study: Study) -> str:
    """Say in a sentence whether rates were chosen."""
    if (study.runs.groupby(list(CELL))["train.lr"].nunique() > 1).any():
        return "The rate of each number was chosen on dev."
    return "One rate was tried in each cell."


def at_chosen(study: Study, rows: DataFrame) -> DataFrame:
    """Select the rows of the runs with the chosen rates."""
    by = [*CELL, "train.lr"]
    runs = rows.drop_duplicates("key").merge(chosen(study)[by], on=by)  # all rows would take long
    return rows[rows["key"].isin(runs["key"])].reset_index(drop=True)


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
    """Average over seeds: value, interval, documents n of a seed, seeds and `seed_values`."""
    lines = []
    for names, group in rows.groupby(list(by), sort=False):
        lines.append({**dict(zip(by, _names(names), strict=True)), **_mean(group)})
    return DataFrame(lines, columns=[*by, "value", "low", "high", "n", "seeds", "seed_values"])


def bounds(rows: DataFrame) -> Bounds:
    """Return what is possible for a mean over these runs, all read by one reading.

    It is the mean of what is possible for each. The bounds of a share are of all documents, also
    where only some have its token: they are widened to hold the mean that was measured.
    """
    if rows.empty:
        return ANY
    if "least" not in rows:
        return BOUNDS.get(rows["metric"].iloc[0], ANY)
    mean = float(rows["value"].mean())
    return min(float(rows["least"].mean()), mean), max(float(rows["most"].mean()), mean)


def _mean(group: DataFrame) -> dict[str, Any]:
    values = group["value"].tolist()
    if len(values) > 1:
        low, high = seed_interval(values, bounds(group))
    else:
        low, high = float(group["low"].iloc[0]), float(group["high"].iloc[0])
    numbers = {"value": float(group["value"].mean()), "low": low, "high": high}
    return {**numbers, "n": int(group["n"].min()), "seeds": len(values), "seed_values": values}


def _counted(study: Study, by: Sequence[str]) -> DataFrame:
    """Count the runs of every planned cell by outcome."""
    lines = []
    for names, group in study.runs.dropna(subset=list(by)).groupby(list(by), sort=False):
        counts = outcomes(group["outcome"])
        lines.append({**dict(zip(by, _names(names), strict=True)), **counts})
    return DataFrame(lines, columns=[*by, *OUTCOMES])


def _names(names: object) -> tuple[object, ...]:
    return names if isinstance(names, tuple) else (names,)


def _state(line: Mapping[str, Any]) -> str:
    """Return `measured`, or why a cell is not."""
    if line["value"] == line["value"]:
        return "measured"
    if line["done"]:
        return "not measured"
    return "missing" if line["missing"] else "diverged" if not line["failed"] else "failed"


def ordered(values: Series) -> list[Any]:
    """Return the different values in order of appearance."""
    return list(dict.fromkeys(values))


def json_value(value: Any) -> Any:
    """Return a plain Python value that JSON can hold: None for a number that is not finite."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
