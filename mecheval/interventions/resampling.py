"""Resamples of what a verdict is decided by: the lost likelihood and the mean restored shares.

Documents are drawn again, and with several grids the seeds, too.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from mecheval.interventions.classify import Place
from mecheval.interventions.grid import Grid
from mecheval.interventions.restoration import shares
from mecheval.metrics.statistics import RESAMPLES, resampled_share, typical_size

WIDER = 5  # resamples spread as if there were so many documents fewer
Resamples = Float64[ndarray, " resamples"]


def lost_again(gap: Float64[ndarray, " n"]) -> Resamples:
    """Return resamples of the mean lost likelihood, as the share of a whole that is always lost."""
    size = typical_size(gap)
    return size * resampled_share(gap, np.full(len(gap), size))


def mean_shares(
    grids: Sequence[Grid], drawn: ndarray
) -> tuple[dict[Place, float], dict[Place, Resamples]]:
    """Return the mean share of every restored cell over seeds, and over resamples.

    A seed that is not solved has no shares: the mean is over the solved ones, if there are any.
    """
    seeds = []
    for grid in grids:
        n, by_cell = len(grid.clean["likelihood"]), shares(grid).items()
        restored = {cell[1:]: pair for cell, pair in by_cell if cell[0] == "restored"}
        seeds.append({place: (x, widen(again, x, n)) for place, (x, again) in restored.items()})
    none = np.nan, np.full(RESAMPLES, np.nan)
    mean: dict[Place, float] = {}
    again: dict[Place, Resamples] = {}
    for place in dict.fromkeys(place for seed in seeds for place in seed):
        values, means = zip(*(seed.get(place, none) for seed in seeds), strict=True)
        mean[place] = float(np.nanmean(values))
        again[place] = mean_over_seeds(means, drawn)
    return mean, again


def widen(again: Resamples, value: float, n: int) -> Resamples:
    """Spread resamples as those of fewer documents, since with few they lie too close together.

    Without it the confidence at 30 documents is too high: docs/calibration.md.
    """
    return value + (again - value) * np.sqrt(n / max(n - WIDER, 1))


def mean_over_seeds(values: Sequence[Resamples], drawn: ndarray) -> Resamples:
    """Return resamples of the mean over seeds: seeds are drawn again, and the documents of each.

    A seed that is NaN is left out.
    """
    again = np.take_along_axis(np.stack(values, axis=1), drawn, axis=1)
    valid = ~np.isnan(again)
    with np.errstate(invalid="ignore"):  # a resample may have no valid seed
        return np.where(valid, again, 0.0).sum(axis=1) / valid.sum(axis=1)
