"""Intervals: Wilson's for shares of right answers, the bootstrap over documents for every other mean."""

from functools import lru_cache

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

CONFIDENCE, RESAMPLES = 0.95, 1000
MANY = 10_000  # documents; from here on a mean is normal, and resampling it would only take time


def interval(values: Float64[ndarray, " n"]) -> tuple[float, float]:
    """The 95 % interval of the mean, the same for the same values every time."""
    from scipy.stats import binomtest, norm  # half a second to import

    n = len(values)
    if np.isin(values, (0.0, 1.0)).all():
        found = binomtest(int(values.sum()), n).proportion_ci(CONFIDENCE, method="wilson")
        return float(found.low), float(found.high)
    if n > MANY:
        low, high = norm.interval(CONFIDENCE, values.mean(), values.std(ddof=1) / np.sqrt(n))
        return float(low), float(high)
    return middle(resampled(values))


def resampled(values: Float64[ndarray, "*cells n"]) -> Float64[ndarray, "*cells resamples"]:
    """Means over documents drawn again with replacement: the same documents for every cell. NaN is no document."""
    counts = _counts(values.shape[-1])
    there = ~np.isnan(values)
    with np.errstate(invalid="ignore"):  # a resample without any document of a cell
        return (np.where(there, values, 0.0) @ counts) / (there @ counts)


@lru_cache(maxsize=2)
def _counts(n: int) -> Float64[ndarray, "n resamples"]:
    """How often each document is in each resample."""
    return np.random.default_rng(n).multinomial(n, np.full(n, 1 / n), size=RESAMPLES).T.astype(np.float64)


def middle(means: Float64[ndarray, " resamples"]) -> tuple[float, float]:
    """Where 95 % of them are."""
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.nanpercentile(means, [tail, 100 - tail])
    return float(low), float(high)
