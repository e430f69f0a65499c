"""The share that an intervention restores, and every cell of a grid as rows with intervals.

restored share    (restored − corrupt) / (clean − corrupt), where clean and corrupt differ enough
ablated share     (clean − ablated) / (clean − corrupt)
"""

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from mecheval.core.errors import InvalidInput
from mecheval.core.options import did_you_mean
from mecheval.interventions.grid import Cell, Grid, layer_of
from mecheval.metrics.measurement import Measurement
from mecheval.metrics.statistics import middle, resampled_share

THRESHOLD = 0.1  # of clean − corrupt likelihood: below it, a share is a quotient of two noises


def rows(grid: Grid, step: int, metrics: Sequence[str] | None = None) -> list[Measurement]:
    """Return the means of a grid's metrics with their intervals, and the shares that exist."""
    known = [*grid.clean, "share"]
    names = known if metrics is None else metrics
    if unknown := [name for name in names if name not in known]:
        raise InvalidInput(f"no metric {name!r}{did_you_mean(name, known)}" for name in unknown)
    ends = {("clean", None, None): grid.clean, ("corrupt", None, None): grid.corrupt}
    measurements = []
    for place, values in (*ends.items(), *grid.cells.items()):
        columns = _columns(grid, step, *place)
        for metric in (name for name in names if name != "share"):
            x = values[metric][~np.isnan(values[metric])]
            measurements.append(Measurement.of(x, metric=metric, **columns))
    for cell, (share, means) in shares(grid).items() if "share" in names else ():
        n = int((~np.isnan(grid.cells[cell]["likelihood"])).sum())
        low, high = middle(means)
        numbers: dict[str, Any] = {
            "value": share,
            "n": n,
            "low": min(low, share),
            "high": max(high, share),
        }
        numbers |= _columns(grid, step, *cell)
        measurements.append(Measurement(metric="share", **numbers))
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
        lost = np.where(usable, clean - corrupt, 0.0)
        if not usable.any() or lost.sum() < THRESHOLD * usable.sum():
            continue  # of the documents that have the token
        moved = clean - likelihood if cell[0] == "ablated" else likelihood - corrupt
        back = np.where(usable, moved, 0.0)
        # the same draws for a cell, whatever other cells the grid has
        again = resampled_share(back, lost, crc32(" ".join(cell).encode()))
        by_cell[cell] = float(back.sum() / lost.sum()), again
    return by_cell


def _columns(
    grid: Grid, step: int, condition: str, site: str | None, role: str | None
) -> dict[str, Any]:
    columns = {"condition": condition, "split": grid.split, "corrupted": grid.corrupted}
    layer = layer_of(site) if site else None
    return {**columns, "step": step, "site": site, "layer": layer, "role": role}
