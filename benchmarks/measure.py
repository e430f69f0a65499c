"""Interleaved rounds: every contestant in every round, CPU and wall time, the median and the spread of each.

A contestant runs twice in a round and the second time counts: the first has the heap that the one before it left.
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


def once(kind: str, value: float) -> dict[str, Spread]:
    """What was measured a single time."""
    return {kind: Spread.of([value])}


@dataclass(frozen=True)
class Times:
    """Milliseconds of each round."""

    cpu: tuple[float, ...]
    wall: tuple[float, ...]

    def each(self, number: int) -> "Times":
        """Of one, where a round made so many."""
        return Times(tuple(t / number for t in self.cpu), tuple(t / number for t in self.wall))

    def spreads(self) -> dict[str, Spread]:
        return {"cpu_ms": Spread.of(self.cpu), "wall_ms": Spread.of(self.wall)}


def cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds of CPU and of wall."""
    wall, cpu = time.perf_counter(), cpu_seconds()
    run()
    return (cpu_seconds() - cpu) * 1e3, (time.perf_counter() - wall) * 1e3


def interleaved(contestants: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Times]:
    for run in contestants.values():
        run()  # compile, and fill the caches
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            run()
            found[name].append(timed(run))
    return {name: Times(*zip(*times, strict=True)) for name, times in found.items()}
