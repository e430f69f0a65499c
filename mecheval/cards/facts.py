"""What a card says, as records: how each architecture did on each task, and what was seen inside the subject."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mecheval.cards.experiments import EMERGENCE
from mecheval.core.spec import Spec
from mecheval.interventions.emergence import crossings
from mecheval.interventions.verdict import UNSOLVED
from mecheval.report import facts
from mecheval.report import labels as names
from mecheval.report.study import CELL, Study
from mecheval.report.tables import at_chosen, behaviour, chosen, read
from mecheval.report.verdicts import verdicts

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Number:
    """A mean over seeds with its 95 % interval; n documents of each seed."""

    value: float
    low: float
    high: float
    n: int
    seeds: int


@dataclass(frozen=True)
class Line:
    """One architecture on one task at the rate that dev chose among `rates`. Without an accuracy, `state` says why.

    `agree` of `judged` seeds have the mechanism; `confidence` is the mean of theirs.
    """

    task: str
    architecture: str
    shown: str
    state: str
    accuracy: Number | None
    likelihood: Number | None
    mechanism: str
    meaning: str
    confidence: float | None
    layer: int | None
    role: str | None
    agree: int
    judged: int
    rate: float | None
    rates: tuple[Row, ...]
    outcomes: Mapping[str, int]

    @property
    def solved(self) -> bool:
        """Whether corrupting a key costs most seeds the answer."""
        return self.mechanism not in ("", UNSOLVED)


@dataclass(frozen=True)
class Emerged:
    """When in a seed's training half of the likelihood first came back at the last layer's input, and where."""

    seed: int
    role: str
    step: int


def lines(study: Study, order: Sequence[str]) -> list[Line]:
    """By task, the architectures in this order."""
    table, rates = verdicts(study), _rates(study)
    likelihoods = {_cell(line): line for line in read(study, [behaviour("likelihood")]).to_dict("records")}
    found = [_line(line, likelihoods[_cell(line)], rates.get(_cell(line), [])) for line in table.to_dict("records")]
    return sorted(found, key=lambda line: (study.field("task").index(line.task), order.index(line.architecture)))


def best_runs(study: Study, architecture: str) -> dict[str, Path]:
    """By task the run at the chosen rate that dev likes most, if one is done; ties go to the lower loss and seed."""
    runs = at_chosen(study, study.runs[study.runs["outcome"] == "done"])
    scores = {m: behaviour(m, "dev").of(study.rows).set_index("key")["value"] for m in ("accuracy", "loss")}
    runs = runs[runs["model.architecture"] == architecture].set_index("key").assign(**scores)
    runs = runs.sort_values(["accuracy", "loss", "seed"], ascending=[False, True, True], kind="stable")
    return {task: Path(group["folder"].iloc[0]) for task, group in runs.groupby("task", sort=False)}


def emerged(study: Study, architecture: str) -> list[Emerged]:
    rows = at_chosen(study, watched(study).rows)
    rows = rows[rows["model.architecture"] == architecture]
    found = []
    for (seed, layers), group in rows.groupby(["seed", "model.layers"]):
        steps = crossings(group.to_dict("records")).get(f"blocks.{int(layers) - 1}.block_in", {})
        if steps:
            role, step = min(steps.items(), key=lambda item: item[1])
            found.append(Emerged(int(seed), role, int(step)))
    return found


def watched(study: Study) -> Study:
    """The runs of the task on which grids were made during training."""
    return on_task(study, next(task for task in study.field("task") if Spec.parse(task).name == EMERGENCE))


def on_task(study: Study, task: str) -> Study:
    tables = {name: getattr(study, name) for name in ("runs", "rows", "curves")}
    return replace(study, **{name: table[table["task"] == task] for name, table in tables.items()})


def unfinished(study: Study) -> list[dict[str, Any]]:
    """Every run that is not done, with its reason."""
    wanted = ("task", "model.architecture", "train.lr", "seed", "status", "outcome", "reason", "steps")
    return [{name: _plain(run[name]) for name in wanted} for run in facts.unfinished(study)]


def _line(line: Row, likelihood: Row, rates: Sequence[Row]) -> Line:
    return Line(
        task=line["task"],
        architecture=line["model.architecture"],
        shown=names.architecture(line["model.architecture"]),
        state=line["state"],
        accuracy=_number(line),
        likelihood=_number(likelihood),
        mechanism=line["mechanism"],
        meaning=line["meaning"],
        confidence=_plain(line["confidence"]),
        layer=_whole(line["layer"]),
        role=line["role"] if isinstance(line["role"], str) else None,
        agree=int(line["agree"]),
        judged=int(line["judged"]),
        rate=_plain(line["train.lr"]),
        rates=tuple(rates),
        outcomes={name: int(line[name]) for name in ("done", "diverged", "failed", "missing")},
    )


def _number(line: Row) -> Number | None:
    if line["state"] != "measured":
        return None
    return Number(float(line["value"]), float(line["low"]), float(line["high"]), int(line["n"]), int(line["seeds"]))


def _rates(study: Study) -> dict[tuple[Any, ...], list[Row]]:
    """By cell, every rate with its accuracy on dev, nothing where no seed was finished, and whether it was chosen."""
    best = {_cell(line): line["train.lr"] for line in chosen(study).to_dict("records")}
    found: dict[tuple[Any, ...], list[Row]] = {}
    for line in read(study, [behaviour(split="dev")], every_rate=True).to_dict("records"):
        rate = {"rate": float(line["train.lr"]), "dev_accuracy": _plain(line["value"]), "state": line["state"]}
        found.setdefault(_cell(line), []).append({**rate, "chosen": best.get(_cell(line)) == line["train.lr"]})
    return found


def _cell(line: Row) -> tuple[Any, ...]:
    return tuple(line[name] for name in CELL)


def _whole(value: Any) -> int | None:
    return None if _plain(value) is None else int(value)


def _plain(value: Any) -> Any:
    """As JSON knows it: a number of Python's, nothing for what is none."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
