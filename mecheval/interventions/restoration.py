"""The share that an intervention restores, and every cell of a grid as rows with intervals.

restored share    (restored − corrupt) / (clean − corrupt), where clean and corrupt differ enough
ablated share     (clean − ablated) / (clean − corrupt)
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from mecheval.interventions.grid import Cell, Grid, layer_of
from mecheval.metrics.measurement import Measurement
from mecheval.metrics.statistics import interval, middle, resampled

THRESHOLD = 0.1  # of clean − corrupt likelihood: below it, a share is a quotient of two noises


def rows(grid: Grid, step: int, metrics: Sequence[str] | None = None) -> list[Measurement]:
    """Return the means of a grid's metrics with their intervals, and the shares that exist."""
    metrics = list(grid.clean) if metrics is None else metrics
    ends = {("clean", None, None): grid.clean, ("corrupt", None, None): grid.corrupt}
    measurements = []
    for place, values in (*ends.items(), *grid.cells.items()):
        for metric in metrics:
            x = values[metric][~np.isnan(values[metric])]
            mean = float(x.mean()) if len(x) else np.nan
            low, high = interval(x) if len(x) else (np.nan, np.nan)
            measurements.append(_row(grid, step, place, metric, (mean, len(x), low, high)))
    for cell, (share, means) in shares(grid).items():
        n = int((~np.isnan(grid.cells[cell]["likelihood"])).sum())
        measurements.append(_row(grid, step, cell, "share", (share, n, *middle(means))))
    return measurements


def shares(grid: Grid) -> dict[Cell, tuple[float, Float64[ndarray, " resamples"]]]:
    """Return the share of every cell over all documents, and over resamples of them.

    A cell has none where clean and corrupt likelihood are too close.
    """
    clean, corrupt = grid.clean["likelihood"], grid.corrupt["likelihood"]
    by_cell: dict[Cell, tuple[float, ndarray]] = {}
    if clean.mean() - corrupt.mean() < THRESHOLD:
        return by_cell
    for cell, values in grid.cells.items():
        likelihood = values["likelihood"]
        usable = ~np.isnan(likelihood)
        if not usable.any():
            continue
        means = [x[usable].mean() for x in (likelihood, clean, corrupt)]
        if means[1] - means[2] < THRESHOLD:  # over the documents that have the token
            continue
        ends = np.stack([np.where(usable, end, np.nan) for end in (clean, corrupt)])
        again = _share(cell[0], resampled(likelihood), *resampled(ends))
        by_cell[cell] = float(_share(cell[0], *means)), again
    return by_cell


def _share(condition: str, likelihood: Any, clean: Any, corrupt: Any) -> Any:
    """Return the share of numbers or of arrays; NaN for resamples that lost nothing."""
    gap = np.where(clean > corrupt, clean - corrupt, np.nan)
    return (clean - likelihood) / gap if condition == "ablated" else (likelihood - corrupt) / gap


def _row(
    grid: Grid,
    step: int,
    place: tuple[str, str | None, str | None],
    metric: str,
    numbers: tuple[float, int, float, float],
) -> Measurement:
    condition, site, role = place
    value, n, low, high = numbers
    return Measurement(
        metric=metric,
        condition=condition,
        value=value,
        n=n,
        low=low,
        high=high,
        split=grid.split,
        step=step,
        corrupted=grid.corrupted,
        site=site,
        layer=layer_of(site) if site else None,
        role=role,
    )
