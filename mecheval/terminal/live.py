"""The progress of a run on stderr: a bar on a terminal, plain lines elsewhere."""

import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from mecheval.runs.experiment import Experiment
from mecheval.terminal.tables import clock
from mecheval.training.config import Row

if TYPE_CHECKING:
    from mecheval.runs.session import Watcher

REFRESH_SECONDS, LINE_SECONDS = 0.2, 5.0


def progress() -> "Watcher":
    """Return a watcher that suits stderr."""
    console = Console(stderr=True, emoji=False)
    return Bar(console) if console.is_terminal else Lines(console)


class Pace:
    """The steps a second of this session, and the time left at that pace."""

    def __init__(self, step: int, total: int) -> None:
        self._first, self._total, self._start = step, total, time.monotonic()

    def at(self, step: int) -> str:
        speed = (step - self._first) / max(time.monotonic() - self._start, 1e-9)
        left = (self._total - step) / speed if speed else 0
        return f"{speed:.0f} steps/s · {clock(left)} left"


class Bar:
    """A progress bar."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[scores]}", markup=False),
            TextColumn("{task.fields[pace]}", markup=False),
            console=console,
            auto_refresh=False,  # no thread beside a run
        )
        self._drawn = 0.0
        self._accuracy = ""

    def start(self, experiment: Experiment, step: int) -> None:
        total = experiment.train.total
        self._pace = Pace(step, total)
        name = f"{experiment.task_spec} · {experiment.model.architecture}"
        self._line = self._progress.add_task(name, total=total, scores="", pace="")
        self._progress.update(self._line, completed=step)
        self._progress.start()

    def log(self, step: int, loss: float, row: Row | None) -> None:
        if row:
            self._accuracy = f" · accuracy {row['accuracy']:.1%}"
        if row or time.monotonic() - self._drawn > REFRESH_SECONDS:
            self._drawn = time.monotonic()
            scores, pace = f"loss {loss:.3f}{self._accuracy}", self._pace.at(step)
            self._progress.update(self._line, completed=step, scores=scores, pace=pace)
            self._progress.refresh()

    def finish(self, status: str) -> None:
        self._progress.update(self._line, pace=status, refresh=True)
        self._progress.stop()


class Lines:
    """A line at the start, at evaluations a few seconds apart, and at the end."""

    def __init__(self, console: Console) -> None:
        self._console, self._printed = console, 0.0

    def start(self, experiment: Experiment, step: int) -> None:
        self._total = experiment.train.total
        self._pace = Pace(step, self._total)
        name = f"{experiment.task_spec} · {experiment.model.architecture}"
        self._print(f"{name}: step {step} of {self._total}")

    def log(self, step: int, loss: float, row: Row | None) -> None:
        due = time.monotonic() - self._printed > LINE_SECONDS or step == self._total
        if row and due:
            scores = f"loss {row['loss']:.3f} · accuracy {row['accuracy']:.1%}"
            self._print(f"step {step} of {self._total} · {scores} · {self._pace.at(step)}")

    def finish(self, status: str) -> None:
        self._print(status)

    def _print(self, text: str) -> None:
        self._printed = time.monotonic()
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
