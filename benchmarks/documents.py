"""How fast documents are drawn, against three plain generators."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.generators import Drawn, by_numpy, by_random, twin
from benchmarks.measure import Times, interleaved
from benchmarks.ratio import Job, Line, times_as_fast
from benchmarks.size import Size
from mecheval.plugins import build_task

CAPTION = (
    "One document, drawn in a block of a whole training set. *twin*: the same documents by the pure twin, its "
    "randomness in Python too; *random*: the same generator fed by Python's own `random`; *numpy*: a generator in the "
    "manner usual in this field, numpy's `choice` for every draw."
)
PLAIN: dict[str, Callable[[Drawn, int], None]] = {
    "twin": twin,
    "random": by_random,
    "numpy": by_numpy,
}


def jobs(size: Size) -> Iterator[Job]:
    for name in ("ar_32pairs", "atr"):
        yield Job(name, partial(lines, name, size), weight=2 * size.rounds)


def lines(name: str, size: Size) -> Iterator[Line]:
    task: Any = build_task(name)
    times = contest(task, size)
    ours = times.pop("ours")
    for other, theirs in times.items():
        yield times_as_fast(name, other, ours, theirs)


def contest(task: Drawn, size: Size) -> dict[str, Times]:
    """Of one document."""
    slowly = {name: partial(draw, task, size.slowly) for name, draw in PLAIN.items()}
    found = interleaved(
        {"ours": partial(task.documents, 0, "train", 0, size.drawn), **slowly}, size.rounds
    )
    return {
        name: times.each(size.drawn if name == "ours" else size.slowly)
        for name, times in found.items()
    }
