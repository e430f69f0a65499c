"""The records of a card, read from its runs: how each architecture did on each task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pandas import DataFrame

from mecheval.cards.experiments import EMERGENCE, CardRuns
from mecheval.cards.search import Stopped
from mecheval.core.spec import Spec
from mecheval.interventions.emergence import crossings
from mecheval.interventions.verdict import UNSOLVED
from mecheval.report import labels
from mecheval.report.facts import unfinished as unfinished_runs
from mecheval.report.study import CELL, OUTCOMES, Study
from mecheval.report.tables import at_chosen, behaviour, chosen, json_value, read
from mecheval.report.verdicts import verdicts
from mecheval.results.plan import FINISHED

Row = Mapping[str, Any]
ACCURATE = 0.9  # accuracy from which a solved task needs no diagnosis


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval; each seed has n documents."""

    value: float
    low: float
    high: float
    n: int
    seeds: int


@dataclass(frozen=True)
class Line:
    """One architecture on one task, at the rate among `rates` that is best on dev.

    If there is no accuracy, `state` says why. `agree` of `judged` seeds have the mechanism;
    `confidence` is the mean of theirs. `heading` and `meaning` are the sentence of the verdict,
    `chance` is the best accuracy without recall.
    """

    task: str
    architecture: str
    shown: str
    state: str
    accuracy: Estimate | None
    likelihood: Estimate | None
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
    heading: str = ""
    chance: float | None = None
    without_recall: str = ""

    @property
    def solved(self) -> bool:
        """Tell whether corrupting a key costs most seeds the answer."""
        return self.mechanism not in ("", UNSOLVED)

    @property
    def needs_diagnosis(self) -> bool:
        """Tell whether it was trained and has not learned the task, or only partly."""
        return self.accuracy is not None and self.accuracy.value < ACCURATE


@dataclass(frozen=True)
class EmergenceStep:
    """The first step of a seed at which the last layer's input restores half, and the role."""

    seed: int
    role: str
    step: int


def read_study(runs: CardRuns, tasks: Sequence[str]) -> tuple[Study, dict[str, Stopped]]:
    """Read the runs on some tasks, and what the rate search stopped and nothing has resumed.

    Runs that no stage has asked for yet are left out, unless an earlier process finished them, and
    those of another size: a scale of the same name may have been changed.
    """
    folders = dict.fromkeys([runs.own.folder, runs.shared.folder])
    parts = [Study.read(folder) for folder in folders if _has_runs(folder)]
    study = Study.joined(parts)
    requested = {**runs.own.requested, **runs.shared.requested}
    table = study.runs
    resting = table["key"].isin(list(runs.own.stopped)) & ~table["outcome"].isin(FINISHED)
    resting &= table["reason"].isna() | (table["status"] == "stopped")
    rates = [float(rate) for rate in table["train.lr"].dropna().unique()]
    finished = table["outcome"].isin(FINISHED) & table["key"].isin(runs.keys(rates))
    keep = finished | table["key"].isin(list(requested))
    keep &= ~resting & table["task"].isin(list(tasks))
    stopped = {key: runs.own.stopped[key] for key in table.loc[resting, "key"]}
    return _restricted(study, table[keep]), stopped


def _has_runs(folder: Path) -> bool:
    return folder.is_dir() and any(path.is_dir() for path in folder.iterdir())


def _restricted(study: Study, runs: DataFrame) -> Study:
    keys = set(runs["key"])
    tables = {name: getattr(study, name) for name in ("rows", "curves")}
    kept = {name: table[table["key"].isin(keys)] for name, table in tables.items()}
    return replace(study, runs=runs, **kept)


def lines(
    study: Study, order: Sequence[str], stopped: Mapping[str, Stopped] | None = None
) -> list[Line]:
    """Return a line for each task and architecture, the architectures in the given order.

    What the search stopped is among the rates of the first.
    """
    rates = _rates(study)
    for one in (stopped or {}).values():
        state = f"stopped at step {one.step:,} ({one.accuracy:.0%} on dev there)"
        resting = {"rate": one.rate, "dev_accuracy": None, "chosen": False, "state": state}
        for cell, tried in rates.items():
            if cell[:2] == (one.task, order[0]):
                tried.append(resting)
                tried.sort(key=lambda rate: float(rate["rate"]))
    likelihoods = {}
    for row in read(study, [behaviour("likelihood")]).to_dict("records"):
        likelihoods[_cell(row)] = row
    entries = []
    for row in verdicts(study).to_dict("records"):
        entries.append(_line(row, likelihoods[_cell(row)], rates.get(_cell(row), [])))
    tasks = study.field("task")
    entries.sort(key=lambda line: (tasks.index(line.task), order.index(line.architecture)))
    return entries


def best_runs(study: Study, architecture: str) -> dict[str, Path]:
    """Return for each task the finished run at the chosen rate that is best on dev.

    Equal accuracies are decided by the lower loss, then by the lower seed.
    """
    runs = at_chosen(study, study.runs[study.runs["outcome"] == "done"])
    runs = runs[runs["model.architecture"] == architecture].set_index("key")
    for metric in ("accuracy", "loss"):
        runs[metric] = behaviour(metric, "dev").of(study.rows).set_index("key")["value"]
    order = {"accuracy": False, "loss": True, "seed": True}
    runs = runs.sort_values([*order], ascending=[*order.values()], kind="stable")
    return {task: Path(group["folder"].iloc[0]) for task, group in runs.groupby("task", sort=False)}


def emergence_steps(study: Study, architecture: str) -> list[EmergenceStep]:
    """Return when, and at which role, the mechanism of each seed emerged."""
    rows = at_chosen(study, watched(study).rows)
    rows = rows[rows["model.architecture"] == architecture]
    emerged = []
    for (seed, layers), group in rows.groupby(["seed", "model.layers"]):
        site = f"blocks.{int(layers) - 1}.block_in"
        steps = crossings(group.to_dict("records")).get(site)
        if steps:
            role, step = min(steps.items(), key=lambda item: item[1])
            emerged.append(EmergenceStep(int(seed), role, int(step)))
    return emerged


def watched(study: Study) -> Study:
    """Return the runs of the task on which grids were measured during training."""
    names = [task for task in study.field("task") if Spec.parse(task).name == EMERGENCE]
    return on_task(study, names[0])


def on_task(study: Study, task: str) -> Study:
    """Return the part of a study that is about one task."""
    tables = {name: getattr(study, name) for name in ("runs", "rows", "curves")}
    return replace(study, **{name: table[table["task"] == task] for name, table in tables.items()})


def unfinished(study: Study) -> list[dict[str, Any]]:
    """Return every run that is not done, with its reason."""
    names = ["task", "model.architecture", "train.lr", "seed"]
    names += ["status", "outcome", "reason", "steps"]
    return [{name: json_value(run[name]) for name in names} for run in unfinished_runs(study)]


def _line(row: Row, likelihood: Row, rates: Sequence[Row]) -> Line:
    layer = json_value(row["layer"])
    same = ["task", "state", "mechanism", "heading", "meaning", "agree", "judged"]
    same += ["chance", "without_recall"]
    return Line(
        **{name: json_value(row[name]) for name in same},
        architecture=row["model.architecture"],
        shown=labels.architecture(row["model.architecture"]),
        accuracy=_estimate(row),
        likelihood=_estimate(likelihood),
        confidence=json_value(row["confidence"]),
        layer=None if layer is None else int(layer),
        role=row["role"] if isinstance(row["role"], str) else None,
        rate=json_value(row["train.lr"]),
        rates=tuple(rates),
        outcomes={name: int(row[name]) for name in OUTCOMES},
    )


def _estimate(row: Row) -> Estimate | None:
    if row["state"] != "measured":
        return None
    value, low, high = (float(row[name]) for name in ("value", "low", "high"))
    return Estimate(value, low, high, int(row["n"]), int(row["seeds"]))


def _rates(study: Study) -> dict[tuple[Any, ...], list[Row]]:
    """Return every rate of each cell with its accuracy on dev, if it has one."""
    best = {_cell(row): row["train.lr"] for row in chosen(study).to_dict("records")}
    rates: dict[tuple[Any, ...], list[Row]] = {}
    for row in read(study, [behaviour(split="dev")], every_rate=True).to_dict("records"):
        rate = {"rate": float(row["train.lr"]), "dev_accuracy": json_value(row["value"])}
        rate |= {"state": row["state"], "chosen": best.get(_cell(row)) == row["train.lr"]}
        rates.setdefault(_cell(row), []).append(rate)
    return rates


def _cell(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in CELL)
