"""Intervals: Wilson's for shares of right answers, the bootstrap over documents for every other mean."""

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

CONFIDENCE, RESAMPLES = 0.95, 2000


def interval(values: Float64[ndarray, " n"]) -> tuple[float, float]:
    """The 95 % interval of the mean, the same for the same values every time."""
    from scipy.stats import binomtest, bootstrap  # half a second to import

    n = len(values)
    if np.isin(values, (0.0, 1.0)).all():
        found = binomtest(int(values.sum()), n).proportion_ci(CONFIDENCE, method="wilson")
        return float(found.low), float(found.high)
    if n < 2 or np.ptp(values) == 0:
        return float(values.min()), float(values.max())  # a resample of equal values is the same
    drawn = bootstrap(
        (values,), np.mean, confidence_level=CONFIDENCE, n_resamples=RESAMPLES, method="percentile", rng=0
    )
    return float(drawn.confidence_interval.low), float(drawn.confidence_interval.high)
