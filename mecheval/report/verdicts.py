"""How each architecture recalls: a line for each cell, from the verdicts of its runs at the chosen rate."""

from collections import Counter
from typing import Any

import numpy as np
from pandas import DataFrame

from mecheval.interventions.verdict import meaning
from mecheval.report import labels as names
from mecheval.report.study import CELL, Study
from mecheval.report.tables import Reading, at_chosen, behaviour, read

ROLES = ("key", "value", "next_key", "query")
NONE = {"mechanism": "", "layer": None, "role": None, "convolution": None, "confidence": np.nan}


def verdicts(study: Study) -> DataFrame:
    """Mechanism of most seeds, and how many those are; accuracy on test; shares at the last block's input."""
    table = read(study, [behaviour()])
    runs = at_chosen(study, study.runs[study.runs["outcome"] == "done"])
    said = {key: found["verdict"] for key, found in study.facts.items() if found["verdict"]}
    found = {
        cell: [said[key] for key in group["key"] if key in said] for cell, group in runs.groupby(list(CELL), sort=False)
    }
    shares = _shares(study, table)
    lines = []
    for line in table.to_dict("records"):
        cell = tuple(line[name] for name in CELL)
        lines.append({**line, **_agreed(found.get(cell, [])), **shares.get(cell, {})})
    return _sorted(DataFrame(lines))


def _agreed(said: list[dict[str, Any]]) -> dict[str, Any]:
    if not said:
        return {**NONE, "meaning": "", "agree": 0, "judged": 0, "where": "–"}
    mechanism, agree = Counter(verdict["mechanism"] for verdict in said).most_common(1)[0]
    most = [verdict for verdict in said if verdict["mechanism"] == mechanism]
    first = {name: most[0].get(name) for name in NONE}
    sure = float(np.mean([verdict["confidence"] for verdict in most]))
    return {
        **first,
        "confidence": sure,
        "meaning": meaning(most[0]),
        "agree": agree,
        "judged": len(said),
        "where": names.convolution(most[0]),
    }


def _shares(study: Study, table: DataFrame) -> dict[tuple[Any, ...], dict[str, float]]:
    """By cell and role, at the input of the last block: where the key's information is before the last layer."""
    found: dict[tuple[Any, ...], dict[str, float]] = {}
    for layers in set(table["model.layers"]):
        site = f"blocks.{int(layers) - 1}.block_in"
        wanted = [Reading(panel=r, metric="share", condition="restored", site=site, role=r) for r in ROLES]
        for line in read(study, wanted).to_dict("records"):
            if line["model.layers"] == layers:
                found.setdefault(tuple(line[name] for name in CELL), {})[f"at_{line['role']}"] = line["value"]
    return found


def _sorted(table: DataFrame) -> DataFrame:
    table = table.reindex(columns=list(dict.fromkeys((*table.columns, *(f"at_{role}" for role in ROLES)))))
    place = [names.order(text) for text in table["model.architecture"]]
    table = table.assign(place=place, shown=[names.architecture(text) for text in table["model.architecture"]])
    return table.sort_values(["task", "model.layers", "place", "setting", "model.d_model"], kind="stable").drop(
        columns="place"
    )
