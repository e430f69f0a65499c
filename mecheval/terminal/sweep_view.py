"""How a sweep goes, for the person who waits: a living table on a terminal, plain lines elsewhere. Both on stderr."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mecheval.results.plan import FINISHED
from mecheval.runs.pending import FAILED
from mecheval.sweeps.state import State
from mecheval.terminal.tables import clock

REFRESH_SECONDS, LINE_SECONDS = 0.5, 30.0
MARKS = {"done": "■", "diverged": "×", "running": "▶", "waiting": "·", "error": "!", "killed": "!", "timeout": "!"}
COLOURS = {"done": "green", "diverged": "yellow", "running": "cyan", "error": "red", "killed": "red", "timeout": "red"}
ORDER = ("done", "diverged", "running", "waiting", "error", "killed", "timeout", "damaged")
Row = Mapping[str, Any]  # a state by the names of its columns, as `State.to_dict` and `Plan.states` have it


def board(workers: int) -> "Board | Lines":
    console = Console(stderr=True, highlight=False)
    return Board(console, workers) if console.is_terminal else Lines(console, workers)


class Board(AbstractContextManager["Board"]):
    """The table of cells, and how all of them stand."""

    def __init__(self, console: Console, workers: int) -> None:
        self._console, self._workers, self._shown = console, workers, 0.0
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> "Board":
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def __call__(self, states: Sequence[State]) -> None:
        if time.monotonic() - self._shown > REFRESH_SECONDS:
            self._shown = time.monotonic()
            rows, room = [state.to_dict() for state in states], max(self._console.height - 4, 4)
            self._live.update(Group(cells(rows, room), summary(rows, self._workers)), refresh=True)


class Lines(AbstractContextManager["Lines"]):
    """A line when a run starts or ends, and now and then how all of them go."""

    def __init__(self, console: Console, workers: int) -> None:
        self._console, self._workers, self._said = console, workers, 0.0
        self._before: dict[str, str] = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def __call__(self, states: Sequence[State]) -> None:
        if not self._before or time.monotonic() - self._said > LINE_SECONDS:
            self._say(summary([state.to_dict() for state in states], self._workers).plain)
        for state in states:
            # what was finished before this sweep is in the first line, among the others
            before = self._before.get(state.job.name, "waiting" if state.attempts else state.status)
            if state.status != before:
                reason = f": {state.reason}" if state.reason else ""
                self._say(f"{state.status} · {title(state.to_dict())}{reason}")
            self._before[state.job.name] = state.status

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def cells(rows: Sequence[Row], room: int) -> Table:
    """A line for each cell, which is a model on a task with all its rates and seeds; those at work come first."""
    table = Table(box=None, pad_edge=False)
    table.add_column("cell", overflow="fold")
    table.add_column("runs", overflow="fold")
    table.add_column("steps/s", justify="right")
    table.add_column("left", justify="right")
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(cell(row), []).append(row)
    shown = sorted(groups.items(), key=lambda item: _urgency(item[1]))
    for name, own in shown[:room]:
        running = [row for row in own if row["status"] == "running" and row.get("speed")]
        speeds = " ".join(f"{row['speed']:.0f}" for row in running)
        left = " ".join(clock((row["total"] - row["steps"]) / row["speed"]) for row in running)
        table.add_row(Text(name), _marks(own), speeds, left)
    if len(shown) > room:
        table.add_row(Text(f"… and {len(shown) - room} more", "dim"), "", "", "")
    return table


def estimate_table(groups: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("task", "architecture"):
        table.add_column(name, overflow="fold")
    for name in ("to run", "steps", "of one core"):
        table.add_column(name, justify="right")
    for row in groups:
        table.add_row(row["task"], row["architecture"], str(row["runs"]), f"{row['steps']:,}", clock(row["seconds"]))
    return table


def failures(rows: Sequence[Row]) -> list[str]:
    """A line for each run that failed, and why."""
    found = [row for row in rows if row["status"] in (*FAILED, "damaged")]
    return [f"{row['status']} · {title(row)}: {row['reason'] or 'its process is gone'}" for row in found]


def summary(rows: Sequence[Row], workers: int | None = None) -> Text:
    """How many stand how, and the time left if so many work at them."""
    counts = Counter(row["status"] for row in rows)
    said = [Text(f"{counts[name]} {name}", COLOURS.get(name, "")) for name in ORDER if counts[name]]
    left = seconds_left(rows, workers) if workers else None
    return Text(" · ").join(said + ([Text(f"about {clock(left)} left")] if left else []))


def seconds_left(rows: Sequence[Row], workers: int) -> float | None:
    """At the pace of those that were seen at work, of the same architecture if there is one; None before that."""
    paces: dict[str, list[float]] = {}
    for row in rows:
        if row["speed"]:
            paces.setdefault(row["model.architecture"], []).append(1 / row["speed"])
    every = [pace for own in paces.values() for pace in own]
    left = [
        (row["total"] - row["steps"]) * _mean(paces.get(row["model.architecture"], every))
        for row in rows
        if every and row["status"] in ("running", "waiting")
    ]
    return max(sum(left) / workers, *left) if left else None


def cell(row: Row) -> str:
    return f"{row['task']} · {row['model.architecture']} · width {row['model.d_model']} · layers {row['model.layers']}"


def title(row: Row) -> str:
    return f"{cell(row)} · rate {row['train.lr']:g} · seed {row['seed']}"


def _marks(rows: Iterable[Row]) -> Text:
    return Text.assemble(*((MARKS.get(row["status"], "?"), COLOURS.get(row["status"], "")) for row in rows))


def _urgency(rows: Sequence[Row]) -> int:
    statuses = {row["status"] for row in rows}
    return 0 if "running" in statuses else 2 if statuses <= {*FINISHED} else 3 if statuses == {"waiting"} else 1


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
