"""The progress of a run, a sweep or a card as one line that updates, above all in notebooks."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from mecheval.core.notebook import bar, clock, status_line
from mecheval.runs.experiment import Experiment
from mecheval.training.config import Row

REFRESH_SECONDS = 0.3


def run_progress(wanted: bool | None) -> list["RunProgress"]:
    """Return the watcher of a run, if its progress is to be shown: see `status_line`."""
    show = status_line(wanted)
    return [RunProgress(show)] if show else []


class RunProgress:
    """Shows steps, loss, accuracy on dev and the time left."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show, self._accuracy, self._shown = show, "", 0.0

    def start(self, experiment: Experiment, step: int) -> None:
        self._name = f"{experiment.task_spec} · {experiment.model.architecture}"
        self._first, self._total, self._start = step, experiment.train.total, time.monotonic()
        self._draw(step, "")

    def log(self, step: int, loss: float, row: Row | None) -> None:
        if row and "accuracy" in row:
            self._accuracy = f" · accuracy {row['accuracy']:.1%}"
        if row or time.monotonic() - self._shown > REFRESH_SECONDS:
            self._draw(step, f" · loss {loss:.3f}{self._accuracy} · {self._left(step)} left")

    def finish(self, status: str) -> None:
        seconds = time.monotonic() - self._start
        self._show(f"{self._name} · {status} in {clock(seconds)}{self._accuracy}\n")

    def _draw(self, step: int, rest: str) -> None:
        self._shown = time.monotonic()
        self._show(f"{self._name} {bar(step, self._total)} {step}/{self._total}{rest}")

    def _left(self, step: int) -> str:
        done = step - self._first
        spent = time.monotonic() - self._start
        return clock(spent / done * (self._total - step)) if done else "…"


def sweep_progress(wanted: bool | None) -> Callable[[Sequence[Any]], None]:
    """Return a function that shows how many of the planned runs are in each state."""
    show = status_line(wanted)
    if show is None:
        return lambda runs: None
    start, before = time.monotonic(), [""]

    def watch(runs: Sequence[Any]) -> None:
        counts: dict[str, int] = {}
        for run in runs:
            counts[run.status] = counts.get(run.status, 0) + 1
        states = " · ".join(f"{count} {status}" for status, count in counts.items())
        total = sum(run.experiment.train.total for run in runs)
        ended = ("done", "diverged")
        steps = sum(
            run.experiment.train.total if run.status in ended else run.steps for run in runs
        )
        line = f"{len(runs)} runs {bar(steps, total)} {states} · {clock(time.monotonic() - start)}"
        if line != before[0]:
            before[0] = line
            show(line)

    return watch
