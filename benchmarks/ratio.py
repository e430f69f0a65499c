"""Define a line of a table: one ratio, its subject, and the floor it is held to."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from benchmarks.measure import Spread, Times

Unit = Literal["×", "%", "exponent", "s", "apart"]


@dataclass(frozen=True)
class Floor:
    value: int | float
    sense: Literal["at least", "at most"] = "at least"

    def verdict(self, ratio: int | float) -> str:
        if self.sense == "at least":
            return "ok" if ratio >= self.value else "below"
        return "ok" if ratio <= self.value else "above"


@dataclass(frozen=True)
class Line:
    """A ratio, with the measurements behind it by kind (`cpu_ms`, `wall_ms`, `mb`).

    A line without a ratio was skipped, and its note gives the reason.
    """

    what: str
    against: str
    ratio: float | None
    unit: Unit = "×"
    least: float | None = None
    most: float | None = None
    ours: Mapping[str, Spread] = field(default_factory=dict)
    theirs: Mapping[str, Spread] = field(default_factory=dict)
    note: str = ""

    def record(self, floor: Floor | None) -> dict[str, Any]:
        """Return the line as JSON data, with its floor and verdict."""
        verdict = floor.verdict(self.ratio) if floor and self.ratio is not None else None
        return {**asdict(self), "floor": asdict(floor) if floor else None, "verdict": verdict}


@dataclass(frozen=True)
class Job:
    """Some lines of a part that are measured together; `weight` is about their time in seconds."""

    name: str
    run: Callable[[], Iterable[Line]]
    weight: int | float = 1


def speedup(what: str, against: str, ours: Times, theirs: Times) -> Line:
    """Return the ratio of their CPU time to ours: of the medians, and its range over the rounds."""
    return _ratio(what, against, ours, theirs, theirs.cpu, ours.cpu)


def cpu_share(what: str, against: str, ours: Times, theirs: Times) -> Line:
    """Return the ratio of our CPU time to theirs."""
    return _ratio(what, against, ours, theirs, ours.cpu, theirs.cpu)


def _ratio(
    what: str,
    against: str,
    ours: Times,
    theirs: Times,
    top: tuple[float, ...],
    bottom: tuple[float, ...],
) -> Line:
    rounds = [a / b for a, b in zip(top, bottom, strict=True)]
    ratio = Spread.of(top).median / Spread.of(bottom).median
    spreads = ours.spreads(), theirs.spreads()
    return Line(what, against, ratio, "×", min(rounds), max(rounds), *spreads)


def skipped(what: str, against: str, reason: str) -> Line:
    return Line(what, against, None, note=f"skipped: {reason}")
