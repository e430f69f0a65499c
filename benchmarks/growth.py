"""How time and memory of a train step grow with length, batch, vocabulary and width: the fitted exponents."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.isolated import apart, forget_peak, memory_mb, peak_mb
from benchmarks.measure import Spread, timed
from benchmarks.memory import small
from benchmarks.ratio import Job, Line
from benchmarks.size import Size
from benchmarks.steps import Arena
from mecheval.runs.experiment import Settings
from mecheval.runs.fit import prepared

CAPTION = (
    "The exponent p of a train step's time and added memory ∝ nᵖ, by least squares in logarithms: 1 is linear, below 1 "
    "much is spent on something else. For the length from 256 tokens on, with a batch of 2; else everything is as in "
    "the steps above at width 64."
)
SHORTEST = 256  # tokens: below, what does not depend on the length counts
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


def lines(architecture: str, axis: str, size: Size) -> Iterator[Line]:
    values = getattr(size, AXES[axis])
    points = apart(measured, architecture=architecture, axis=axis, size=asdict(size))
    least = SHORTEST if axis == "length" and sum(value >= SHORTEST for value in values) > 1 else 0
    for against, name, unit in (("time", "cpu_ms", "ms"), ("memory", "mb", "MB")):
        kept = [(n, point) for n, point in zip(values, points[name], strict=True) if n >= least]
        spreads = {
            f"{name} at {n}": Spread.of([point])
            for n, point in zip(values, points[name], strict=True)
        }
        note = f"{values[0]:,}: {points[name][0]:.3g} {unit} … {values[-1]:,}: {points[name][-1]:.3g} {unit}"
        yield Line(
            f"{architecture}, {axis}",
            against,
            exponent(*zip(*kept, strict=True)),
            "exponent",
            ours=spreads,
            note=note,
        )


def exponent(values: Sequence[int | float], points: Sequence[int | float]) -> float:
    """p of points ∝ valuesᵖ."""
    return float(np.polyfit(np.log(values), np.log(points), 1)[0])


def measured(architecture: str, axis: str, size: Mapping[str, Any]) -> dict[str, list[float]]:
    """CPU milliseconds and added megabytes of a step at each value. Values rise: what one leaves is below the next
    one's peak."""
    sized = Size.of(size)
    found: dict[str, list[float]] = {"cpu_ms": [], "mb": []}
    with prepared(Settings()):
        small(architecture).ours()()
        before = memory_mb()
        for value in getattr(sized, AXES[axis]):
            forget_peak()
            step = _arena(architecture, axis, value, sized).ours()
            step()  # allocates
            found["cpu_ms"].append(Spread.of([timed(step)[0] for _ in range(sized.rounds)]).median)
            found["mb"].append(peak_mb() - before)
    return found


def _arena(architecture: str, axis: str, value: int, size: Size) -> Arena:
    """The arena of the steps with one thing changed."""
    if axis == "width":
        return Arena(architecture, value, size)
    if axis == "length":
        longest = max(*size.lengths, size.max_len)
        pairs = (value - 3) // 2  # BOS, divider and query stand beside them
        size = replace(size, pairs=pairs, batch=size.long_batch, max_len=longest)
    elif axis == "batch":
        size = replace(size, batch=value)
    else:
        size = replace(size, vocab=value)
    return Arena(architecture, size.width, size)
