"""Compare groups of runs over seeds: every pair of groups, metric by metric."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from pandas import DataFrame

from mecheval.core.errors import InvalidInput
from mecheval.metrics.statistics import ALPHA, CORRECTIONS, LEAST, adjust_p, contrast, seeds_needed
from mecheval.report.groups import Grouped, field_named, setting
from mecheval.report.study import Study, outcomes
from mecheval.report.tables import Reading, behaviour, bounds
from mecheval.report.verdicts import ROLES

METRICS = ("accuracy", "likelihood", "loss", "share")
DIFFER, UNCLEAR, FEW = "differ", "unclear", "too few seeds"
LAST = "last block_in"  # the input of each model's own last block
_MOST = 8  # groups that a message names
Numbers = Mapping[Reading, DataFrame]  # the rows of a reading, by the key of the run


@dataclass(frozen=True)
class Comparison:
    """`table` has a line for each setting, number (`panel`) and pair of groups.

    `groups` has a line for each group in each setting; its columns named in `panels` are means over
    seeds. A `setting` is what a pair has in common.
    """

    study: Study
    by: str
    correction: str
    panels: Sequence[str]
    table: DataFrame
    groups: DataFrame
    notes: Sequence[str]


def compare(
    folder: str | Path,
    *more: str | Path,
    by: str = "architecture",
    metrics: Sequence[str] = ("accuracy", "likelihood"),
    roles: Sequence[str] = (),
    correction: str = "holm",
) -> Comparison:
    """Compare the runs of all folders on test, by groups that differ in the field `by`.

    A share is what is restored at the last block's input, at `roles` or at all of them. Corrected
    p's are corrected for all lines of the table.

    Parameters
    ----------
    folder
        A folder with runs.
    more
        Further folders.
    by
        The field in which groups differ.
    metrics
        Any of accuracy, likelihood, loss and share.
    roles
        Roles of the share.
    correction
        Correction of p for the number of tests: `holm`, `bh` or `none`.

    Returns
    -------
    Comparison
        A table of differences with intervals, p and an answer; means by group; notes.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from mecheval import EvalConfig, Experiment, ModelConfig, Recall, TrainConfig, compare, run
    >>> experiment = Experiment(
    ...     task=Recall(pairs=2, vocab=8),
    ...     model=ModelConfig("attention", d_model=8),
    ...     train=TrainConfig(documents=0, steps=4),
    ...     eval=EvalConfig(documents=16, every=2, grid_documents=16),
    ... )
    >>> wide = replace(experiment, model=ModelConfig("attention", d_model=16))
    >>> for seed in range(2):
    ...     for one in (experiment, wide):
    ...         _ = run(replace(one, seed=seed), "compared")
    >>> compare("compared", by="d_model", metrics=["accuracy"]).table["answer"].tolist()
    ['too few seeds']
    """
    readings = _readings(by, metrics, roles, correction)
    grouped = Grouped.read([folder, *more], by)
    rows = _at_last_block(grouped.study.rows)
    tables = [reading.of(rows).dropna(subset=["value"]).set_index("key") for reading in readings]
    numbers = dict(zip(readings, tables, strict=True))
    panels = [reading.panel for reading in readings]
    groups = DataFrame(_groups(grouped, numbers))
    lines, left_out = _pairs(grouped, numbers)
    if not lines:
        raise InvalidInput(_nothing(by, panels, groups, grouped.others))
    table = _decide(DataFrame(lines), correction)
    notes = [*_unfinished(groups), *left_out, *_few(table, correction)]
    return Comparison(grouped.study, grouped.field, correction, panels, table, groups, notes)


def _readings(by: str, metrics: Sequence[str], roles: Sequence[str], fix: str) -> list[Reading]:
    """Validate the options and return what is read off each run."""
    field_named(by)
    problems = []
    for name, values, known in (
        ("metric", metrics, METRICS),
        ("role", roles, ROLES),
        ("correction", [fix], CORRECTIONS),
    ):
        allowed = ", ".join(known)
        problems += [f"{name}={v!r} must be one of {allowed}" for v in values if v not in known]
    if roles and "share" not in metrics:
        problems.append(f"role={roles[0]!r} must come with metric 'share'")
    if problems:
        raise InvalidInput(problems)
    readings = [behaviour(name, panel=name) for name in dict.fromkeys(metrics) if name != "share"]
    place = {"metric": "share", "condition": "restored", "site": LAST}
    for role in dict.fromkeys(roles or ROLES) if "share" in metrics else ():
        readings.append(Reading(panel=f"share at {role}", role=role, **place))
    return readings


def _at_last_block(rows: DataFrame) -> DataFrame:
    """Give the input of each model's last block one name."""
    last = [f"blocks.{layers - 1:.0f}.block_in" for layers in rows["model.layers"]]
    return rows.assign(site=rows["site"].mask(rows["site"] == last, LAST))


def _of(numbers: DataFrame, runs: DataFrame) -> DataFrame:
    """Select the rows of a reading that belong to these runs."""
    return numbers[numbers.index.isin(runs["key"])]


def _groups(grouped: Grouped, numbers: Numbers) -> Iterator[dict[str, Any]]:
    for alike, groups in grouped.settings():
        for name, runs in groups.items():
            values = {reading.panel: _of(rows, runs)["value"] for reading, rows in numbers.items()}
            rates = runs["train.lr"].unique()
            yield {
                **alike,
                "group": name,
                "train.lr": rates[0] if len(rates) == 1 else np.nan,
                "seeds": max(len(column) for column in values.values()),
                **outcomes(runs["outcome"]),
                **{panel: column.mean() for panel, column in values.items()},
            }


def _pairs(grouped: Grouped, numbers: Numbers) -> tuple[list[dict[str, Any]], list[str]]:
    """Compare all pairs of groups with enough seeds, and say which have too few."""
    lines, left_out = [], []
    for alike, groups in grouped.settings():
        if len(groups) == 1:
            left_out.append(f"not compared: {alike['setting']} has {next(iter(groups))} alone")
            continue
        for reading, every in numbers.items():
            rows = {name: _of(every, runs) for name, runs in groups.items()}
            enough = [name for name in rows if len(rows[name]) >= LEAST]
            few = [f"{name} {len(rows[name])}" for name in rows if name not in enough]
            if few:
                where = f"{reading.panel} at {alike['setting']}"
                left_out.append(f"not compared: {where}: seeds with it: {', '.join(few)}")
            number = {"panel": reading.panel, "metric": reading.metric, "role": reading.role}
            for a, b in combinations(enough, 2):
                result = _contrast(rows[a], rows[b], same_documents=grouped.field != "task")
                lines.append({**alike, **number, "a": a, "b": b, **result})
    return lines, left_out


def _contrast(a: DataFrame, b: DataFrame, same_documents: bool) -> dict[str, Any]:
    x, y = (dict(zip(rows["seed"].astype(int), rows["value"], strict=True)) for rows in (a, b))
    (a_least, a_most), (b_least, b_most) = bounds(a), bounds(b)
    return asdict(contrast(x, y, same_documents, (a_least - b_most, a_most - b_least)))


def _decide(table: DataFrame, correction: str) -> DataFrame:
    """Add p corrected for all lines, the smallest that it can be, and the answer."""
    p, smallest = (adjust_p(table[n].to_numpy(), correction) for n in ("p", "smallest_p"))
    answer = np.where(p <= ALPHA, DIFFER, np.where(smallest <= ALPHA, UNCLEAR, FEW))
    return table.assign(corrected_p=p, smallest_corrected_p=smallest, answer=answer)


def _nothing(by: str, panels: Sequence[str], groups: DataFrame, others: Sequence[str]) -> str:
    """Say that no two groups can be compared, and which groups there are."""
    differ = [name for name in others if groups[name].nunique(dropna=False) > 1]
    texts = []
    for line in groups.to_dict("records"):
        where = f" at {setting({name: line[name] for name in differ})}" if differ else ""
        texts.append(f"{line['group']}{where} {line['seeds']}{_ends(line)}")
    more = f"; and {len(texts) - _MOST} groups more" if len(texts) > _MOST else ""
    return (
        f"by={by!r} must have 2 groups that are alike in all other fields, each of {LEAST} seeds "
        f"or more with {' or '.join(panels)}; there are {'; '.join(texts[:_MOST])}{more}"
    )


def _unfinished(groups: DataFrame) -> Iterator[str]:
    for line in groups.to_dict("records"):
        if ends := _ends(line):
            where = f"{line['group']} at {line['setting']}"
            yield f"{where}: {line['done']} done{ends}; only runs that are done have numbers"


def _ends(line: dict[str, Any]) -> str:
    names = ("diverged", "failed", "missing")
    return "".join(f", {line[name]} {name}" for name in names if line[name])


def _few(table: DataFrame, correction: str) -> Iterator[str]:
    """Say that no test can find anything with so few seeds, in place of 'not significant'."""
    few = table[table["answer"] == FEW]
    if few.empty:
        return
    best = few.loc[few["smallest_p"].idxmin()]
    seeds = f"{best['seeds_a']}" if best["paired"] else f"{best['seeds_a']} and {best['seeds_b']}"
    least, after = best["smallest_p"], best["smallest_corrected_p"]
    many = f" ({after:.2g} corrected for {len(table)} comparisons)" if after > least else ""
    needed = seeds_needed(len(table), correction)
    enough = f"; {needed} shared seeds could tell" if needed else ""
    yield (
        f"with {seeds} seeds the smallest p is {least:.2g}{many}: differences cannot be told from "
        f"chance by a test; see the interval{enough}"
    )
