"""Measure the peak memory of a train step, against the plain form, each in a process of its own."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from benchmarks.isolated import memory_mb, peak_mb, reset_peak, run_isolated
from benchmarks.measure import single
from benchmarks.plain import Ops, twins
from benchmarks.ratio import Job, Line
from benchmarks.size import Size
from benchmarks.steps import Setup, Step
from mecheval.runs.experiment import Settings
from mecheval.runs.fit import prepared

CAPTION = (
    "The resident memory that a model and its train steps add to a process that has imported "
    "everything: how many times as much the plain form takes. The peak over three steps."
)
STEPS = 3


def jobs(size: Size) -> Iterator[Job]:
    for architecture in size.architectures:
        yield Job(architecture, partial(lines, architecture, size), weight=15)


def lines(architecture: str, size: Size) -> Iterator[Line]:
    arguments = {"architecture": architecture, "size": asdict(size)}
    ours, theirs = (
        run_isolated(added_memory, form=form, **arguments)["mb"] for form in ("ours", "plain")
    )
    what = f"{architecture} d={size.width}"
    yield Line(what, "plain", theirs / ours, ours=single("mb", ours), theirs=single("mb", theirs))


def added_memory(architecture: str, form: str, size: Mapping[str, Any]) -> dict[str, float]:
    """Return the peak of the megabytes that a model and its steps add."""
    loaded_size = Size.of(size)
    ops = twins()  # in both forms, so that both have imported every op
    with prepared(Settings()):
        _step(small_setup(architecture), form, ops)()
        before = memory_mb()
        reset_peak()
        step = _step(Setup(architecture, loaded_size.width, loaded_size), form, ops)
        for _ in range(STEPS):
            step()
    return {"mb": peak_mb() - before}


def _step(setup: Setup, form: str, ops: Ops) -> Step:
    return setup.plain(ops) if form == "plain" else setup.ours()


def small_setup(architecture: str) -> Setup:
    """Return a setup whose step compiles all that is needed and leaves no memory behind."""
    return Setup(architecture, 16, Size(batch=1, pairs=2, vocab=16))
