"""The rate search of a card: after a part of training, all rates but the best are stopped.

Every rate is an ordinary run. A stopped one keeps its checkpoint, and a later stage can resume it.
What is stopped depends on dev and on the step alone, so that every machine decides alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mecheval.runs.checkpoint import newest_curve, newest_step
from mecheval.runs.experiment import Experiment
from mecheval.runs.files import Damaged, read_json, write_json
from mecheval.runs.pending import PendingRun

FILE = "search.json"
PART = 0.2  # of the steps, after which rates are compared
RULE = f"After {PART:.0%} of the steps the search stops all rates but the one best on dev."


@dataclass(frozen=True)
class Stopped:
    """A run that the search stopped at a step, with its scores on dev and those of the best."""

    task: str
    rate: float
    seed: int
    step: int
    accuracy: float
    loss: float
    best_rate: float
    best_loss: float

    @property
    def reason(self) -> str:
        worse = f"dev loss {self.loss:.3g}, against {self.best_loss:.3g} at rate"
        return f"stopped by the rate search at step {self.step:,}: {worse} {self.best_rate:g}"


@dataclass(frozen=True)
class Score:
    """A run on dev at the last evaluation up to a step."""

    experiment: Experiment
    step: int
    accuracy: float
    loss: float
    finished: bool


def compared_at(experiment: Experiment) -> int | None:
    """Return the step at which rates are compared, an evaluation; None in a very short training."""
    every, total = experiment.eval.every, experiment.train.total
    step = every * max(round(PART * total / every), 1)
    return step if step < total else None


def reached(experiment: Experiment, folder: Path, step: int) -> bool:
    """Tell whether a run is finished or has a checkpoint at this step or later."""
    place = PendingRun(folder / experiment.name)
    return place.finished is not None or newest_step(place.checkpoints) >= step


def score(experiment: Experiment, folder: Path, step: int) -> Score | None:
    """Return the score of a run up to a step; None for one that diverged or failed before."""
    place = PendingRun(folder / experiment.name)
    run = place.finished
    curve = run.curve if run else newest_curve(place.checkpoints)
    rows = [row for row in curve if row["step"] <= step and "accuracy" in row]
    if not rows:
        return None
    numbers = (int(rows[-1]["step"]), float(rows[-1]["accuracy"]), float(rows[-1]["loss"]))
    return Score(experiment, *numbers, finished=run is not None)


def select_worse(scores: Sequence[Score]) -> list[Stopped]:
    """Return the runs to stop: all but the best, by dev loss, and the finished."""
    if not scores:
        return []
    best = min(scores, key=lambda one: one.loss)
    return [_stopped(one, best) for one in scores if one is not best and not one.finished]


def _stopped(one: Score, best: Score) -> Stopped:
    experiment = one.experiment
    return Stopped(
        task=experiment.task_spec,
        rate=experiment.train.lr,
        seed=experiment.seed,
        step=one.step,
        accuracy=one.accuracy,
        loss=one.loss,
        best_rate=best.experiment.train.lr,
        best_loss=best.loss,
    )


def read_stopped(folder: Path) -> dict[str, Stopped]:
    """Return what the search stopped in a folder, by the key of the experiment."""
    try:
        record = read_json(folder / FILE)
        return {key: Stopped(**fields) for key, fields in record["stopped"].items()}
    except (Damaged, KeyError, TypeError, AttributeError):
        return {}


def write_stopped(folder: Path, stopped: Mapping[str, Stopped]) -> None:
    records: dict[str, Any] = {key: asdict(one) for key, one in stopped.items()}
    if stopped != read_stopped(folder):
        write_json(folder / FILE, {"stopped": records})


def wider_rate(rates: Sequence[float], best: float) -> float | None:
    """Return the next rate beyond the edge that the best one is at; None inside or for one rate.

    Rates go 1, 3, 10: the next of 0.003 is 0.01, the one before is 0.001.
    """
    if len(rates) < 2 or min(rates) < best < max(rates):
        return None
    leading = int(f"{best:e}"[0])
    factor = 3.0 if leading < 3 else 10 / 3
    if best == min(rates):
        factor = 0.3 if leading < 3 else 1 / 3
    return float(f"{best * factor:.1g}")
