"""Whether groups of runs differ by more than their seeds do: every pair of groups, metric by metric."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from pandas import DataFrame, Series

from mecheval.core.errors import InvalidInput
from mecheval.metrics.contrasts import ALPHA, CORRECTIONS, LEAST, Seeds, contrast, corrected, seeds_needed
from mecheval.report.groups import Grouped, field_named, setting
from mecheval.report.study import Study, outcomes
from mecheval.report.tables import Reading, behaviour
from mecheval.report.verdicts import ROLES

METRICS = ("accuracy", "likelihood", "loss", "share")
DIFFER, UNCLEAR, FEW = "differ", "unclear", "too few seeds"
_MOST = 8  # groups that a refusal names


@dataclass(frozen=True)
class Comparison:
    """`table` has a line for each setting, number (`panel`) and pair of groups, `groups` one for each group in each.

    Means over seeds are in the columns of `groups` that `panels` names. A `setting` is what a pair has in common.
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
    """The runs of all folders, on test. A share is what is restored at the last block's input, at these roles or all.

    The corrected p's are corrected for all lines of the table.
    """
    readings = _checked(by, metrics, roles, correction)
    found = Grouped.read([folder, *more], by)
    numbers = {wanted.panel: found.runs["key"].map(_numbers(found.study.rows, wanted)) for wanted in readings}
    found = replace(found, runs=found.runs.assign(**numbers))
    groups = DataFrame(_groups(found, list(numbers)))
    lines, left_out = _pairs(found, readings)
    if not lines:
        raise InvalidInput(_nothing(by, list(numbers), groups, found.others))
    table = _judged(DataFrame(lines), correction)
    notes = [*_unfinished(groups), *left_out, *_few(table, correction)]
    return Comparison(found.study, found.field, correction, list(numbers), table, groups, notes)


def _checked(by: str, metrics: Sequence[str], roles: Sequence[str], correction: str) -> list[Reading]:
    """What is read off each run."""
    field_named(by)
    problems = [f"metric={name!r} must be one of {', '.join(METRICS)}" for name in metrics if name not in METRICS]
    problems += [f"role={name!r} must be one of {', '.join(ROLES)}" for name in roles if name not in ROLES]
    if roles and "share" not in metrics:
        problems.append(f"role={roles[0]!r} must come with metric 'share'")
    if correction not in CORRECTIONS:
        problems.append(f"correction={correction!r} must be one of {', '.join(CORRECTIONS)}")
    if problems:
        raise InvalidInput(problems)
    found = [behaviour(name, panel=name) for name in dict.fromkeys(metrics) if name != "share"]
    for role in dict.fromkeys(roles or ROLES) if "share" in metrics else ():
        found.append(Reading(panel=f"share at {role}", metric="share", condition="restored", role=role))
    return found


def _numbers(rows: DataFrame, reading: Reading) -> Series:
    """By the key of the run. The last block is each model's own."""
    if reading.metric == "share":
        last = [f"blocks.{layers - 1:.0f}.block_in" for layers in rows["model.layers"]]
        rows = rows[rows["site"] == last].assign(site=reading.site)
    return reading.of(rows).set_index("key")["value"]


def _groups(found: Grouped, panels: Sequence[str]) -> Iterator[dict[str, Any]]:
    for alike, groups in found.settings():
        for name, runs in groups.items():
            rates = runs["train.lr"].unique()
            yield {
                **alike,
                "group": name,
                "train.lr": rates[0] if len(rates) == 1 else np.nan,
                "seeds": int(runs[panels].notna().sum().max()),
                **outcomes(runs["outcome"]),
                **runs[panels].mean().to_dict(),
            }


def _pairs(found: Grouped, readings: Sequence[Reading]) -> tuple[list[dict[str, Any]], list[str]]:
    """Of groups with enough seeds; the others in words."""
    lines, left_out = [], []
    for alike, groups in found.settings():
        if len(groups) == 1:
            left_out.append(f"not compared: {alike['setting']} has {next(iter(groups))} alone")
            continue
        for wanted in readings:
            seeds = {name: _by_seed(runs, wanted.panel) for name, runs in groups.items()}
            few = [f"{name} {len(own)}" for name, own in seeds.items() if len(own) < LEAST]
            if few:
                left_out.append(f"not compared: {wanted.panel} at {alike['setting']}: seeds with it: {', '.join(few)}")
            for a, b in combinations([name for name, own in seeds.items() if len(own) >= LEAST], 2):
                result = asdict(contrast(seeds[a], seeds[b], same_documents=found.field != "task"))
                if wanted.metric in ("accuracy", "likelihood"):
                    result |= {"low": max(result["low"], -1.0), "high": min(result["high"], 1.0)}
                number = {"panel": wanted.panel, "metric": wanted.metric, "role": wanted.role}
                lines.append({**alike, **number, "a": a, "b": b, **result})
    return lines, left_out


def _by_seed(runs: DataFrame, panel: str) -> Seeds:
    there = runs.dropna(subset=[panel])
    return dict(zip(there["seed"].astype(int).tolist(), there[panel].tolist(), strict=True))


def _judged(table: DataFrame, correction: str) -> DataFrame:
    """With p corrected for all lines, the smallest that this can be, and what follows."""
    p, smallest = (corrected(table[name].to_numpy(), correction) for name in ("p", "smallest_p"))
    answer = np.where(p <= ALPHA, DIFFER, np.where(smallest <= ALPHA, UNCLEAR, FEW))
    return table.assign(corrected_p=p, smallest_corrected_p=smallest, answer=answer)


def _nothing(by: str, panels: Sequence[str], groups: DataFrame, others: Sequence[str]) -> str:
    differ = [name for name in others if groups[name].nunique(dropna=False) > 1]
    said = []
    for line in groups.to_dict("records"):
        where = f" at {setting({name: line[name] for name in differ})}" if differ else ""
        said.append(f"{line['group']}{where} {line['seeds']}{_ends(line)}")
    more = f"; and {len(said) - _MOST} groups more" if len(said) > _MOST else ""
    return (
        f"by={by!r} must have 2 groups that are alike in all other fields, each of {LEAST} seeds or more with "
        f"{' or '.join(panels)}; there are {'; '.join(said[:_MOST])}{more}"
    )


def _unfinished(groups: DataFrame) -> list[str]:
    return [
        f"{line['group']} at {line['setting']}: {line['done']} done{ends}; only runs that are done have numbers"
        for line in groups.to_dict("records")
        if (ends := _ends(line))
    ]


def _ends(line: dict[str, Any]) -> str:
    return "".join(f", {line[name]} {name}" for name in ("diverged", "failed", "missing") if line[name])


def _few(table: DataFrame, correction: str) -> list[str]:
    """No test finds what so few seeds cannot show: this is said in place of 'not significant'."""
    few = table[table["answer"] == FEW]
    if few.empty:
        return []
    best = few.loc[few["smallest_p"].idxmin()]
    seeds = f"{best['seeds_a']}" if best["paired"] else f"{best['seeds_a']} and {best['seeds_b']}"
    least, after = best["smallest_p"], best["smallest_corrected_p"]
    many = f" ({after:.2g} corrected for {len(table)} comparisons)" if after > least else ""
    needed = seeds_needed(len(table), correction)
    said = f"with {seeds} seeds the smallest p is {least:.2g}{many}: differences cannot be told from chance by a test"
    return [f"{said}; see the interval" + (f"; {needed} shared seeds could tell" if needed else "")]
