"""Measure how fast documents are drawn, against three plain generators."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.generators import BuiltinTask, draw_by_numpy, draw_by_random, draw_by_twin
from benchmarks.measure import Times, time_rounds
from benchmarks.ratio import Job, Line, speedup
from benchmarks.size import Size
from mecheval.plugins import build_task

CAPTION = (
    "The time of one document, drawn in a block the size of a training set. *twin*: the reference "
    "implementation, which draws the same documents with its random numbers in Python too; "
    "*random*: the same generator with Python's `random`; *numpy*: a generator as is usual in this "
    "field, with numpy's `choice` for every draw."
)
PLAIN: dict[str, Callable[[BuiltinTask, int], None]] = {
    "twin": draw_by_twin,
    "random": draw_by_random,
    "numpy": draw_by_numpy,
}


def jobs(size: Size) -> Iterator[Job]:
    for name in ("ar_32pairs", "atr"):
        yield Job(name, partial(lines, name, size), weight=2 * size.rounds)


def lines(name: str, size: Size) -> Iterator[Line]:
    task: Any = build_task(name)
    times = time_generators(task, size)
    ours = times.pop("ours")
    for other, theirs in times.items():
        yield speedup(name, other, ours, theirs)


def time_generators(task: BuiltinTask, size: Size) -> dict[str, Times]:
    """Return the time of one document by each generator."""
    plain = {name: partial(draw, task, size.slowly) for name, draw in PLAIN.items()}
    ours = partial(task.documents, 0, "train", 0, size.drawn)
    times = time_rounds({"ours": ours, **plain}, size.rounds)
    return {
        name: total.divided_by(size.drawn if name == "ours" else size.slowly)
        for name, total in times.items()
    }
