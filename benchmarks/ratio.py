"""A line of a table: one ratio, what it is of, and the floor it is held to."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from benchmarks.measure import Spread, Times

Unit = Literal["×", "%", "exponent", "s", "apart"]


@dataclass(frozen=True)
class Floor:
    value: int | float
    sense: Literal["at least", "at most"] = "at least"

    def verdict(self, found: int | float) -> str:
        if self.sense == "at least":
            return "ok" if found >= self.value else "below"
        return "ok" if found <= self.value else "above"


@dataclass(frozen=True)
class Line:
    """`ours` and `theirs` by what was measured (`cpu_ms`, `wall_ms`, `mb`). A line without a ratio was skipped, and its
    note says why."""

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
        """As JSON keeps it, with the floor and whether it is kept."""
        verdict = floor.verdict(self.ratio) if floor and self.ratio is not None else None
        return {**asdict(self), "floor": asdict(floor) if floor else None, "verdict": verdict}


@dataclass(frozen=True)
class Job:
    """Some lines of a part, measured together. `weight` is about how many seconds they take."""

    name: str
    run: Callable[[], Iterable[Line]]
    weight: int | float = 1


def times_as_fast(what: str, against: str, ours: Times, theirs: Times, note: str = "") -> Line:
    """By CPU time: their median over ours, and the same of every round."""
    return _ratio(what, against, theirs.cpu, ours.cpu, ours, theirs, note)


def share_of(what: str, against: str, ours: Times, theirs: Times) -> Line:
    """Our CPU time as a part of theirs."""
    return _ratio(what, against, ours.cpu, theirs.cpu, ours, theirs, "")


def _ratio(
    what: str,
    against: str,
    top: tuple[float, ...],
    bottom: tuple[float, ...],
    ours: Times,
    theirs: Times,
    note: str,
) -> Line:
    rounds = [a / b for a, b in zip(top, bottom, strict=True)]
    ratio = Spread.of(top).median / Spread.of(bottom).median
    return Line(
        what, against, ratio, "×", min(rounds), max(rounds), ours.spreads(), theirs.spreads(), note
    )


def skipped(what: str, against: str, reason: str) -> Line:
    return Line(what, against, None, note=f"skipped: {reason}")
