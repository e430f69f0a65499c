"""What an intervention brought back: every cell of a grid as rows with intervals.

restored share    (restored − corrupt) / (clean − corrupt), where clean and corrupt differ enough
ablated share     (clean − ablated) / (clean − corrupt)
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from mecheval.interventions.interchange import METRICS, Cell, Grid, layer_of
from mecheval.metrics.measurement import Measurement
from mecheval.metrics.statistics import interval, middle, resampled

THRESHOLD = 0.1  # of clean − corrupt likelihood: below it a share would be a quotient of two noises


def rows(grid: Grid, step: int, metrics: Sequence[str] = METRICS) -> list[Measurement]:
    """One row for each metric, condition, site and role; and the share, where it means something."""
    found = []
    for condition, values in (("clean", grid.clean), ("corrupt", grid.corrupt)):
        for metric in metrics:
            found.append(_row(grid, metric, condition, values[metric], step))
    for cell, values in grid.cells.items():
        for metric in metrics:
            found.append(_row(grid, metric, cell[0], values[metric], step, cell))
    return found + list(_share_rows(grid, step))


def shares(grid: Grid) -> dict[Cell, tuple[float, Float64[ndarray, " resamples"]]]:
    """Of every cell, over all documents and over resamples; nothing where clean and corrupt are too near."""
    clean, corrupt = grid.clean["likelihood"], grid.corrupt["likelihood"]
    if clean.mean() - corrupt.mean() < THRESHOLD:
        return {}
    found = {}
    for cell, values in grid.cells.items():
        there = ~np.isnan(values["likelihood"])
        ends = np.stack([np.where(there, end, np.nan) for end in (clean, corrupt)])
        mine = values["likelihood"]
        if not there.any():
            continue
        share = _share(cell[0], np.nanmean(mine), *np.nanmean(ends, axis=1))
        found[cell] = float(share), _share(cell[0], resampled(mine), *resampled(ends))
    return found


def _share(condition: str, here: Any, clean: Any, corrupt: Any) -> Any:
    """Of numbers, or of arrays of them."""
    gap = clean - corrupt
    return (clean - here) / gap if condition == "ablated" else (here - corrupt) / gap


def _share_rows(grid: Grid, step: int) -> Iterator[Measurement]:
    for cell, (share, means) in shares(grid).items():
        low, high = middle(means)
        n = int((~np.isnan(grid.cells[cell]["likelihood"])).sum())
        yield _measurement(grid, "share", cell[0], share, n, (low, high), step, cell)


def _row(
    grid: Grid, metric: str, condition: str, values: Float64[ndarray, " n"], step: int, cell: Cell | None = None
) -> Measurement:
    there = values[~np.isnan(values)]
    ends = interval(there) if len(there) else (np.nan, np.nan)
    mean = float(there.mean()) if len(there) else np.nan
    return _measurement(grid, metric, condition, mean, len(there), ends, step, cell)


def _measurement(
    grid: Grid,
    metric: str,
    condition: str,
    value: float,
    n: int,
    ends: tuple[float, float],
    step: int,
    cell: Cell | None,
) -> Measurement:
    _, site, role = cell or (None, None, None)
    return Measurement(
        metric=metric,
        condition=condition,
        value=value,
        n=n,
        low=ends[0],
        high=ends[1],
        split=grid.split,
        step=step,
        corrupted=None if condition == "clean" else grid.corrupted,
        site=site,
        layer=layer_of(site) if site else None,
        role=role,
    )
