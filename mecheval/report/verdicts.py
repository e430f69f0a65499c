"""The verdict table: for each cell the mechanism of its runs at the chosen rate, and accuracy."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pandas import DataFrame

from mecheval.interventions.sentence import layers_text, phrases
from mecheval.interventions.verdict import Thresholds
from mecheval.metrics.statistics import proportion_interval
from mecheval.report import labels
from mecheval.report.study import CELL, Study
from mecheval.report.tables import Reading, at_chosen, behaviour, once, read
from mecheval.tasks.chance import known_chance

ROLES = ("key", "value", "next_key", "query")
NONE = {"mechanism": "", "layer": None, "role": None, "convolution": None, "confidence": np.nan}
NONE |= {"layer_confidence": np.nan, "heading": "", "meaning": "", "layers": "–"}
NONE |= {"agree": 0, "judged": 0, "agree_low": np.nan, "agree_high": np.nan}
HOLDS = Thresholds().holds


def verdicts(study: Study) -> DataFrame:
    """Return a line for each cell: accuracy on test, mechanism of most seeds, shares by role.

    Over seeds a mechanism is a proportion: `agree` of `judged` seeds have it, with Wilson's
    interval `agree_low` to `agree_high`. At the last block's input, `at_value` is the mean share
    restored at the value, which `holds_value` of `seeds_value` seeds have above the threshold.
    `chance` is the best accuracy that needs no recall.
    """
    return once(study, "verdicts", _verdicts)


def _verdicts(study: Study) -> DataFrame:
    table = read(study, [behaviour()])
    runs = at_chosen(study, study.runs[study.runs["outcome"] == "done"])
    by_cell: dict[Any, list[Mapping[str, Any]]] = {}
    for cell, group in runs.groupby(list(CELL), sort=False):
        every = [study.facts[key]["verdict"] for key in group["key"] if key in study.facts]
        by_cell[cell] = [verdict for verdict in every if verdict]
    shares = _shares(study, table)
    lines = []
    for line in table.to_dict("records"):
        cell = _cell(line)
        line |= {**_majority(by_cell.get(cell, [])), **shares.get(cell, {})}
        lines.append({**line, **_chance(line["task"])})
    return _sorted(DataFrame(lines))


def _cell(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(line[name] for name in CELL)


def _majority(seeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mechanism of most seeds, how many have it, and the first of their verdicts."""
    if not seeds:
        return {**NONE, "where": "–"}
    mechanism, agree = Counter(verdict["mechanism"] for verdict in seeds).most_common(1)[0]
    agreeing = [verdict for verdict in seeds if verdict["mechanism"] == mechanism]
    low, high = proportion_interval(agree, len(seeds))
    heading, meaning = phrases(*seeds)
    return {
        **{name: agreeing[0].get(name) for name in NONE},
        "confidence": _mean([verdict.get("confidence") for verdict in agreeing]),
        "layer_confidence": _mean([verdict.get("layer_confidence") for verdict in agreeing]),
        "heading": heading,
        "layers": layers_text(*agreeing),
        "meaning": meaning,
        "agree": agree,
        "judged": len(seeds),
        "agree_low": low,
        "agree_high": high,
        "where": labels.convolution(agreeing[0]),
    }


def _chance(task: str) -> dict[str, Any]:
    """Return the best accuracy without recall, NaN if it is not known, and all of them in words."""
    levels = known_chance(task)
    if levels is None:
        return {"chance": np.nan, "without_recall": "not known, the task is not registered here"}
    return {"chance": levels.best, "without_recall": str(levels)}


def _mean(values: Sequence[float | None]) -> float:
    """Return the mean of the confidences, NaN where one has too few documents."""
    return float(np.mean([np.nan if value is None else value for value in values]))


def _shares(study: Study, table: DataFrame) -> dict[tuple[Any, ...], dict[str, float]]:
    """Return by cell and role what is restored at the input of the last block."""
    shares: dict[tuple[Any, ...], dict[str, float]] = {}
    for layers in set(table["model.layers"]):
        place = {"condition": "restored", "site": f"blocks.{int(layers) - 1}.block_in"}
        readings = [Reading(panel=r, metric="share", role=r, **place) for r in ROLES]
        for line in read(study, readings).to_dict("records"):
            if line["model.layers"] != layers:
                continue
            role, measured = line["role"], line["state"] == "measured"
            values = line["seed_values"] if measured else []
            columns = shares.setdefault(_cell(line), {})
            columns[f"at_{role}"] = line["value"]
            columns[f"holds_{role}"] = sum(value >= HOLDS for value in values)
            columns[f"seeds_{role}"] = len(values)
    return shares


def _sorted(table: DataFrame) -> DataFrame:
    columns = [f"{name}_{role}" for name in ("at", "holds", "seeds") for role in ROLES]
    table = table.reindex(columns=list(dict.fromkeys((*table.columns, *columns))))
    texts = table["model.architecture"]
    table = table.assign(shown=texts.map(labels.architecture), place=texts.map(labels.order))
    by = ["task", "model.layers", "place", "setting", "model.d_model"]
    return table.sort_values(by, kind="stable").drop(columns="place")
