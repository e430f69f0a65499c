"""Time contestants in interleaved rounds: CPU and wall time, with median and range.

Every contestant runs twice in every round, and only the second run counts: the first one still
has the heap that the previous contestant left.
"""

import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))


def single(kind: str, value: float) -> dict[str, Spread]:
    """Return the spread of a value that was measured once."""
    return {kind: Spread.of([value])}


@dataclass(frozen=True)
class Times:
    """The milliseconds of each round."""

    cpu: tuple[float, ...]
    wall: tuple[float, ...]

    def divided_by(self, number: int) -> "Times":
        """Return the times of one item, where each round processed `number` of them."""
        return Times(tuple(t / number for t in self.cpu), tuple(t / number for t in self.wall))

    def spreads(self) -> dict[str, Spread]:
        return {"cpu_ms": Spread.of(self.cpu), "wall_ms": Spread.of(self.wall)}


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def time_call(run: Callable[[], object]) -> tuple[float, float]:
    """Return the milliseconds of CPU and of wall time."""
    wall, cpu = time.perf_counter(), cpu_seconds()
    run()
    return (cpu_seconds() - cpu) * 1e3, (time.perf_counter() - wall) * 1e3


def time_rounds(contestants: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Times]:
    for run in contestants.values():
        run()  # compile, and fill the caches
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            run()
            times[name].append(time_call(run))
    return {name: Times(*zip(*calls, strict=True)) for name, calls in times.items()}
