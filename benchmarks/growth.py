"""Fit how time and memory of a train step grow with length, batch, vocabulary and width."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.isolated import memory_mb, peak_mb, reset_peak, run_isolated
from benchmarks.measure import Spread, time_call
from benchmarks.memory import small_setup
from benchmarks.ratio import Job, Line
from benchmarks.size import Size
from benchmarks.steps import Setup
from mecheval.runs.experiment import Settings
from mecheval.runs.fit import prepared

CAPTION = (
    "The exponent p of a train step's time and added memory ∝ nᵖ, by least squares in logarithms: "
    "1 is linear growth, and a smaller one means that a part does not depend on n. The length "
    "starts at 256 tokens with a batch of 2; everything else is as in the steps above at width 64. "
    "Of the later mixers, one for each op and form of it is measured, in the length alone."
)
SHORTEST = 256  # tokens: below that, the part that does not depend on the length counts
AXES = {
    "length": "lengths",
    "batch": "batches",
    "vocabulary": "vocabularies",
    "width": "grown_widths",
}


def jobs(size: Size) -> Iterator[Job]:
    for architecture in size.architectures:
        for axis in AXES:
            weight = 4 * size.rounds * (5 if axis == "length" else 1)
            yield Job(f"{architecture}, {axis}", partial(lines, architecture, axis, size), weight)
    for architecture in size.newer_grown:
        run = partial(lines, architecture, "length", size)
        yield Job(f"{architecture}, length", run, weight=20 * size.rounds)


def lines(architecture: str, axis: str, size: Size) -> Iterator[Line]:
    values = getattr(size, AXES[axis])
    points = run_isolated(measure_steps, architecture=architecture, axis=axis, size=asdict(size))
    least = SHORTEST if axis == "length" and sum(value >= SHORTEST for value in values) > 1 else 0
    for against, name, unit in (("time", "cpu_ms", "ms"), ("memory", "mb", "MB")):
        curve = list(zip(values, points[name], strict=True))
        fit = exponent(*zip(*((n, point) for n, point in curve if n >= least), strict=True))
        spreads = {f"{name} at {n}": Spread.of([point]) for n, point in curve}
        first, last = (f"{n:,}: {point:.3g} {unit}" for n, point in (curve[0], curve[-1]))
        what, note = f"{architecture}, {axis}", f"{first} … {last}"
        yield Line(what, against, fit, "exponent", ours=spreads, note=note)


def exponent(values: Sequence[int | float], points: Sequence[int | float]) -> float:
    """Return p of points ∝ valuesᵖ."""
    return float(np.polyfit(np.log(values), np.log(points), 1)[0])


def measure_steps(architecture: str, axis: str, size: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return CPU milliseconds and added megabytes of a step at each value.

    Values increase, so that the memory one leaves behind is below the peak of the next.
    """
    loaded_size = Size.of(size)
    points: dict[str, list[float]] = {"cpu_ms": [], "mb": []}
    with prepared(Settings()):
        small_setup(architecture).ours()()
        before = memory_mb()
        for value in getattr(loaded_size, AXES[axis]):
            reset_peak()
            step = _setup(architecture, axis, value, loaded_size).ours()
            step()  # allocates
            times = [time_call(step)[0] for _ in range(loaded_size.rounds)]
            points["cpu_ms"].append(Spread.of(times).median)
            points["mb"].append(peak_mb() - before)
    return points


def _setup(architecture: str, axis: str, value: int, size: Size) -> Setup:
    """Return the setup of the steps with one axis changed."""
    if axis == "width":
        return Setup(architecture, value, size)
    if axis == "length":
        longest = max(*size.lengths, size.max_len)
        pairs = (value - 3) // 2  # the other three tokens are BOS, divider and query
        size = replace(size, pairs=pairs, batch=size.long_batch, max_len=longest)
    elif axis == "batch":
        size = replace(size, batch=value)
    else:
        size = replace(size, vocab=value)
    return Setup(architecture, size.width, size)
