"""The progress of a sweep, its status and its verdicts on a terminal.

Progress goes to stderr: a live table on a terminal, plain lines elsewhere.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mecheval.results.plan import FINISHED
from mecheval.runs.pending import FAILED, STOPPED
from mecheval.sweeps.estimate import EARLY
from mecheval.sweeps.planned import PlannedRun
from mecheval.terminal.tables import clock, duration, verdict_table, whole_percent

REFRESH_SECONDS, LINE_SECONDS = 0.5, 30.0
MARKS = {"done": ("■", "green"), "diverged": ("×", "yellow"), "running": ("▶", "cyan")}
MARKS |= dict.fromkeys(("paused", STOPPED), ("‖", "cyan"))
MARKS |= {"waiting": ("·", ""), **dict.fromkeys(FAILED, ("!", "red")), "damaged": ("?", "")}
Row = Mapping[str, Any]  # a state by column, as `PlannedRun.row` and `Plan.states` return it


@contextmanager
def sweep_progress(workers: int) -> "Iterator[LiveTable | Lines]":
    """Yield a function that shows the runs it is called with."""
    console = Console(stderr=True, highlight=False, emoji=False)
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield LiveTable(live, workers)
    else:
        yield Lines(console, workers)


class LiveTable:
    """A table of cells with a summary below, redrawn in place."""

    def __init__(self, live: Live, workers: int) -> None:
        self._live, self._workers, self._drawn = live, workers, 0.0

    def __call__(self, runs: Sequence[PlannedRun]) -> None:
        if time.monotonic() - self._drawn > REFRESH_SECONDS:
            self._drawn = time.monotonic()
            rows = [run.row() for run in runs]
            table = cells(rows, max(self._live.console.height - 4, 4))
            self._live.update(Group(table, summary(rows, self._workers)), refresh=True)

    def say(self, text: str) -> None:
        """Print a line above the table."""
        self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)


class Lines:
    """A line when a run starts or ends, and now and then a summary."""

    def __init__(self, console: Console, workers: int) -> None:
        self._console, self._workers, self._printed = console, workers, 0.0
        self._statuses: dict[str, str] = {}

    def __call__(self, runs: Sequence[PlannedRun]) -> None:
        if not self._statuses or time.monotonic() - self._printed > LINE_SECONDS:
            self._print(summary([run.row() for run in runs], self._workers).plain)
        for run in runs:
            # what was finished before this sweep is counted in the first line
            before = self._statuses.get(run.name, "waiting" if run.attempts else run.status)
            if run.status != before:
                reason = f": {run.reason}" if run.reason else ""
                self._print(f"{run.status} · {run_name(run.row())}{reason}")
            self._statuses[run.name] = run.status

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _print(self, text: str) -> None:
        self._printed = time.monotonic()
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def cells(rows: Sequence[Row], limit: int) -> Table:
    """Return a line per cell: a model on a task with all its rates and seeds.

    Cells with running runs come first; no more than `limit` are listed.
    """
    table = Table(box=None, pad_edge=False)
    table.add_column("cell", overflow="fold")
    table.add_column("runs", overflow="fold")
    table.add_column("steps/s", justify="right")
    table.add_column("left", justify="right")
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(cell_name(row), []).append(row)
    ordered = sorted(groups.items(), key=lambda item: _urgency(item[1]))
    for name, group in ordered[:limit]:
        running = [row for row in group if row["status"] == "running" and row.get("speed")]
        speeds = " ".join(f"{row['speed']:.0f}" for row in running)
        left = " ".join(clock((row["total"] - row["steps"]) / row["speed"]) for row in running)
        marks = Text.assemble(*(MARKS.get(row["status"], MARKS["damaged"]) for row in group))
        table.add_row(Text(name), marks, speeds, left)
    if len(ordered) > limit:
        table.add_row(Text(f"… and {len(ordered) - limit} more", "dim"), "", "", "")
    return table


def estimate_table(groups: Sequence[Row]) -> Table:
    """Return a line for the runs of each task and architecture that are to be run."""
    table = Table(box=None, pad_edge=False)
    for name in ("task", "architecture"):
        table.add_column(name, overflow="fold")
    for name in ("to run", "steps", "of one core"):
        table.add_column(name, justify="right")
    for row in groups:
        numbers = (str(row["runs"]), f"{row['steps']:,}", clock(row["seconds"]))
        table.add_row(row["task"], row["architecture"], *numbers)
    return table


def queue_table(studies: Sequence[Row]) -> Table:
    """Return a line for each study of a queue: how much of it is kept, and what is left."""
    table = Table(box=None, pad_edge=False)
    for name in ("study", "recipe", "scale"):
        table.add_column(name, overflow="fold")
    estimated = any("seconds" in study for study in studies)
    for name in ("runs", "kept", "left", *(["of one core"] if estimated else [])):
        table.add_column(name, justify="right")
    for study in studies:
        left = study["runs"] - study["kept"]
        numbers = [str(study["runs"]), str(study["kept"]), str(left)]
        numbers += [clock(study["seconds"]) if left else "–"] if "seconds" in study else []
        table.add_row(study["name"], study["recipe"], study["scale"], *numbers)
    return table


def study_verdicts(lines: Sequence[Row]) -> Table:
    """Return the verdicts of a study: architecture, and whatever else differs between the lines."""
    from mecheval.report.labels import task

    columns = {"architecture": [line["shown"] for line in lines]}
    columns["task"] = [task(line["task"]) for line in lines]
    columns["width"] = [str(line["model.d_model"]) for line in lines]
    columns["layers"] = [str(line["model.layers"]) for line in lines]
    columns["setting"] = [line["setting"] for line in lines]
    names = [name for name in columns if name == "architecture" or len({*columns[name]}) > 1]
    table = []
    for number, line in enumerate(lines):
        accuracy = whole_percent(line) if line["value"] == line["value"] else "–"
        verdict = Text("–")
        if line["mechanism"]:
            verdict = Text.assemble((line["heading"], "bold"), ": ", line["meaning"])
        table.append([*(columns[name][number] for name in names), accuracy, verdict])
    return verdict_table(names, table)


def failures(rows: Sequence[Row]) -> list[str]:
    """Return a line with the reason for each run that failed or was stopped."""
    failed = [row for row in rows if row["status"] in (STOPPED, *FAILED, "damaged")]
    lost = "its process is gone"
    return [f"{row['status']} · {run_name(row)}: {row['reason'] or lost}" for row in failed]


def summary(rows: Sequence[Row], workers: int | None = None) -> Text:
    """Return the number of runs by status, and the time left with so many workers."""
    counts = Counter(row["status"] for row in rows)
    parts = [Text(f"{counts[name]} {name}", MARKS[name][1]) for name in MARKS if counts[name]]
    left = seconds_left(rows, workers) if workers else None
    return Text(" · ").join(parts + ([Text(f"{duration(*left)} left")] if left else []))


def seconds_left(rows: Sequence[Row], workers: int) -> tuple[float, float] | None:
    """Return a range of the time left; None while no pace is known, or if nothing is left.

    A pace is that of runs at work now, or of finished ones: of the same task and architecture if
    there are any. At the lower end, at the fastest pace, runs that may stop early do so after as
    many steps as the first to finish, or after a part `EARLY` of what is left; at the upper end,
    at the slowest pace, they do not. Of the runs that pause, one continues to its end.
    """
    left = [_left(row, rows) for row in rows if row["status"] in ("running", "waiting")]
    known = [ends for ends in left if ends]
    if not known or len(known) < len(left):
        return None
    fewest, most = zip(*known, strict=True)
    least, longest = _after_pause(rows)
    first, last = max(sum(fewest) / workers, *fewest), max(sum(most) / workers, *most)
    return first + least, last + longest


def _after_pause(rows: Sequence[Row]) -> tuple[float, float]:
    """Return the fewest and the most seconds of the one run that continues when all have paused."""
    ends = []
    for row in rows:
        if row.get("until") is not None and row["until"] < row["total"]:
            steps, paces = row["total"] - row["until"], _paces(row, rows)
            part = EARLY if row.get("train.stop") is not None else 1.0
            ends.append((part * steps * min(paces), steps * max(paces)))
    return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else (0.0, 0.0)


def _left(row: Row, rows: Sequence[Row]) -> tuple[float, float] | None:
    """Return the fewest and the most seconds that a run still takes."""
    paces = _paces(row, rows)
    if not paces:
        return None
    last = row["total"] if row.get("until") is None else min(row["until"], row["total"])
    most = max(last - row["steps"], 0)
    fewest = most
    if row.get("train.stop") is not None:
        alike = [other for other in rows if _kind(other) == _kind(row)]
        shares = [other["steps"] / other["total"] for other in alike if other["status"] == "done"]
        first = row["total"] * min(shares, default=EARLY)
        fewest = min(most, first - row["steps"] if first > row["steps"] else EARLY * most)
    return fewest * min(paces), most * max(paces)


def _paces(row: Row, rows: Sequence[Row]) -> list[float]:
    """Return the seconds of a step in the runs that are most like this one."""
    timed = [other for other in rows if other["speed"]]
    alike = [other for other in timed if _kind(other) == _kind(row)]
    same = [o for o in timed if o["model.architecture"] == row["model.architecture"]]
    nearest = alike or same or timed
    running = [other for other in nearest if other["status"] == "running"]
    return [1 / other["speed"] for other in running or nearest]


def _kind(row: Row) -> tuple[str, str]:
    return row["task"], row["model.architecture"]


def cell_name(row: Row) -> str:
    model = f"{row['model.architecture']} · width {row['model.d_model']}"
    return f"{row['task']} · {model} · layers {row['model.layers']}"


def run_name(row: Row) -> str:
    return f"{cell_name(row)} · rate {row['train.lr']:g} · seed {row['seed']}"


def _urgency(rows: Sequence[Row]) -> int:
    statuses = {row["status"] for row in rows}
    if "running" in statuses:
        return 0
    if statuses <= {*FINISHED}:
        return 2
    return 3 if statuses == {"waiting"} else 1
