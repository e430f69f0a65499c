"""What an intervention brought back: every cell of a grid as rows with intervals.

restored share    (restored − corrupt) / (clean − corrupt), where clean and corrupt differ enough
ablated share     (clean − ablated) / (clean − corrupt)
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from mecheval.interventions.grid import Cell, Grid, layer_of
from mecheval.metrics.measurement import Measurement
from mecheval.metrics.statistics import interval, middle, resampled

THRESHOLD = 0.1  # of clean − corrupt likelihood: below it a share would be a quotient of two noises


def rows(grid: Grid, step: int, metrics: Sequence[str] | None = None) -> list[Measurement]:
    """One row for each metric that the grid has, condition, site and role; the share, where it means something."""
    found, metrics = [], list(grid.clean) if metrics is None else metrics
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
        mine = values["likelihood"]
        there = ~np.isnan(mine)
        here = [x[there].mean() for x in (mine, clean, corrupt)] if there.any() else [0.0, 0.0, 0.0]
        if here[1] - here[2] < THRESHOLD:  # of the documents that have the token
            continue
        ends = np.stack([np.where(there, end, np.nan) for end in (clean, corrupt)])
        found[cell] = float(_share(cell[0], *here)), _share(cell[0], resampled(mine), *resampled(ends))
    return found


def _share(condition: str, here: Any, clean: Any, corrupt: Any) -> Any:
    """Of numbers, or of arrays of them; none where documents drawn again lost nothing."""
    gap = np.where(clean > corrupt, clean - corrupt, np.nan)
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
        corrupted=grid.corrupted,
        site=site,
        layer=layer_of(site) if site else None,
        role=role,
    )
