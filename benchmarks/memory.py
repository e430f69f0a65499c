"""Peak memory of a train step, against the plain form's, each in a process of its own."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from benchmarks.isolated import apart, forget_peak, memory_mb, peak_mb
from benchmarks.measure import once
from benchmarks.plain import twins
from benchmarks.ratio import Job, Line
from benchmarks.size import Size
from benchmarks.steps import Arena
from mecheval.runs.experiment import Settings
from mecheval.runs.fit import prepared

CAPTION = (
    "Resident memory that a model and its train steps add to a process that has imported everything: how many times as "
    "much the plain form takes. Largest of three steps."
)
STEPS = 3


def jobs(size: Size) -> Iterator[Job]:
    for architecture in size.architectures:
        yield Job(architecture, partial(lines, architecture, size), weight=15)


def lines(architecture: str, size: Size) -> Iterator[Line]:
    given = {"architecture": architecture, "size": asdict(size)}
    ours, theirs = (apart(added, form=form, **given)["mb"] for form in ("ours", "plain"))
    what = f"{architecture} d={size.width}"
    yield Line(what, "plain", theirs / ours, ours=once("mb", ours), theirs=once("mb", theirs))


def added(architecture: str, form: str, size: Mapping[str, Any]) -> dict[str, float]:
    """Megabytes of a model and its steps, at most."""
    sized = Size.of(size)
    arena, plain = Arena(architecture, sized.width, sized), twins()
    with prepared(Settings()):
        small(architecture).plain(plain)() if form == "plain" else small(architecture).ours()()
        before = memory_mb()
        forget_peak()
        step = arena.plain(plain) if form == "plain" else arena.ours()
        for _ in range(STEPS):
            step()
    return {"mb": peak_mb() - before}


def small(architecture: str) -> Arena:
    """A step of it loads and compiles whatever is needed, and leaves no memory behind."""
    return Arena(architecture, 8, Size(batch=1, pairs=2, vocab=16))
