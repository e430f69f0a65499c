"""Intervals of means and proportions, and comparisons of two groups of seeds.

Documents are many, but a second training differs from the first by more than its documents do. So
over several runs the seed is the unit: a run is one observation, a mean over seeds has Student's
interval, and runs with the same seed, which saw the same documents, are a pair. Within one run the
document is the unit: Wilson's interval for right answers, the bootstrap for every other mean.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, inf

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

CONFIDENCE, RESAMPLES = 0.95, 1000
ALPHA = 1 - CONFIDENCE
MANY = 10_000  # documents; from here on a mean is normal, and resampling it would only take time
LEAST = 2  # seeds of an interval and of a comparison
CORRECTIONS = ("holm", "fdr", "none")
PERMUTATIONS = 20_000  # up to so many a test is exact: 14 pairs, or 8 seeds against 8 others
DIGITS = 12  # of a difference: two sums in another order are still a tie

Bounds = tuple[float, float]
Values = Sequence[float] | Float64[ndarray, " n"]
Seeds = Mapping[int, float]  # a number by the seed of its run
ANY: Bounds = (-inf, inf)
# What is possible for each metric. A share is not here: `report.tables` derives its bounds per run.
BOUNDS: dict[str, Bounds] = {
    **dict.fromkeys(("accuracy", "likelihood", "counterfactual"), (0.0, 1.0)),
    **dict.fromkeys(("loss", "kl", "cost"), (0.0, inf)),
}


def seed_interval(values: Values, bounds: Bounds = ANY) -> Bounds:
    """Return Student's 95 % interval of the mean over seeds, cut to `bounds`; NaN for one seed.

    Seeds drawn again with replacement would never leave the range of those seen: with three
    seeds such an interval covers the truth three times in four, not 19 times in 20.
    """
    x = np.asarray(values, dtype=np.float64)
    if len(x) < LEAST:
        return np.nan, np.nan
    return _student(float(x.mean()), float(x.var(ddof=1) / len(x)), len(x) - 1, bounds)


def proportion_interval(k: int, n: int) -> Bounds:
    """Return Wilson's 95 % interval of the proportion k of n."""
    from scipy.special import ndtri  # scipy.stats takes seconds to import, for the same numbers

    z, p = float(ndtri(0.5 + 0.5 * CONFIDENCE)), k / n
    middle = (2 * n * p + z**2) / (2 * (n + z**2))
    half = z / (2 * (n + z**2)) * math.sqrt(4 * n * p * (1 - p) + z**2)
    return (middle - half if k else 0.0), (middle + half if k < n else 1.0)


def interval(values: Float64[ndarray, " n"]) -> Bounds:
    """Return the 95 % interval of a mean over documents, always the same for the same values."""
    n = len(values)
    if np.isin(values, (0.0, 1.0)).all():
        return proportion_interval(int(values.sum()), n)
    if n > MANY:
        from scipy.stats import norm

        low, high = norm.interval(CONFIDENCE, values.mean(), values.std(ddof=1) / np.sqrt(n))
        return float(low), float(high)
    return middle(resampled(values))


def resampled(values: Float64[ndarray, "*cells n"]) -> Float64[ndarray, "*cells resamples"]:
    """Return means over documents drawn with replacement, the same documents for every cell.

    NaN marks a document that a cell does not have.
    """
    counts = _counts(values.shape[-1])
    there = ~np.isnan(values)
    with np.errstate(invalid="ignore"):  # a resample may have no document of a cell
        return (np.where(there, values, 0.0) @ counts) / (there @ counts)


@lru_cache(maxsize=2)
def _counts(n: int) -> Float64[ndarray, "n resamples"]:
    """Return how often each document is in each resample."""
    drawn = np.random.default_rng(n).multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
    return drawn.T.astype(np.float64)


def middle(means: Float64[ndarray, " resamples"]) -> Bounds:
    """Return the ends of the middle 95 % of resampled means."""
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.nanpercentile(means, [tail, 100 - tail])
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class Contrast:
    """The difference a − b of two groups of seeds, with its interval and its permutation test.

    `smallest_p` is the least p that so many seeds can give, however far apart the groups are.
    `pair_differences` has a value for each shared seed, and is empty if the groups are not paired.
    """

    mean_a: float
    mean_b: float
    difference: float
    low: float
    high: float
    p: float
    smallest_p: float
    seeds_a: int
    seeds_b: int
    paired: bool
    pair_differences: tuple[float, ...]


def contrast(a: Seeds, b: Seeds, same_documents: bool = True, bounds: Bounds = ANY) -> Contrast:
    """Compare two groups of at least two seeds each.

    Where two or more seeds are in both groups, only those are compared, pair by pair. The interval
    is Student's of the pairs' differences, or Welch's; `bounds` are those of a difference.
    """
    assert min(len(a), len(b)) >= LEAST
    shared = sorted(a.keys() & b.keys()) if same_documents else []
    paired = len(shared) >= LEAST
    x = np.array([a[seed] for seed in (shared if paired else sorted(a))], dtype=np.float64)
    y = np.array([b[seed] for seed in (shared if paired else sorted(b))], dtype=np.float64)
    differences = x - y if paired else np.empty(0)
    low, high = seed_interval(differences, bounds) if paired else _welch(x, y, bounds)
    return Contrast(
        mean_a=float(x.mean()),
        mean_b=float(y.mean()),
        difference=float(x.mean() - y.mean()),
        low=low,
        high=high,
        p=_permutation_p(x, y, paired),
        smallest_p=smallest_p(len(x), len(y), paired),
        seeds_a=len(x),
        seeds_b=len(y),
        paired=paired,
        pair_differences=tuple(differences.tolist()),
    )


def smallest_p(a: int, b: int, paired: bool) -> float:
    """Return p when the observed order is the most extreme of all: once on either side."""
    ways = 2**a if paired else comb(a + b, a)
    return 2 / (ways if ways <= PERMUTATIONS else PERMUTATIONS + 1)


def adjust_p(p: Float64[ndarray, " tests"], correction: str = "holm") -> Float64[ndarray, " tests"]:
    """Correct p for so many tests at once.

    Holm bounds the chance of any false finding, fdr (Benjamini and Hochberg) their expected share.
    No corrected p falls when any p rises, so the corrected smallest p's are the smallest possible.
    """
    assert correction in CORRECTIONS
    if correction == "none" or not len(p):
        return p
    if correction == "fdr":
        from scipy.stats import false_discovery_control

        return false_discovery_control(p)
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    result = np.empty_like(p)
    result[order] = np.minimum(steps, 1.0)
    return result


def seeds_needed(tests: int, correction: str = "holm") -> int | None:
    """Return how many pairs let one of so many tests find anything; None if no number does."""
    for seeds in range(LEAST, 33):
        smallest = np.full(tests, smallest_p(seeds, seeds, paired=True))
        if adjust_p(smallest, correction)[0] <= ALPHA:
            return seeds
    return None


def _welch(x: Float64[ndarray, " a"], y: Float64[ndarray, " b"], bounds: Bounds) -> Bounds:
    """Return Welch's interval. scipy's own is NaN where neither group has any spread."""
    parts = np.array([group.var(ddof=1) / len(group) for group in (x, y)])
    variance = float(parts.sum())
    below = float((parts**2 / np.array([len(x) - 1, len(y) - 1])).sum())
    freedom = variance**2 / below if below else 1.0
    return _student(float(x.mean() - y.mean()), variance, freedom, bounds)


def _student(mean: float, variance: float, freedom: float | int, bounds: Bounds) -> Bounds:
    from scipy.special import stdtrit  # scipy.stats takes two seconds to import

    half = stdtrit(freedom, 1 - ALPHA / 2) * np.sqrt(variance)
    low, high = np.clip((mean - half, mean + half), *bounds)
    return float(low), float(high)


def _permutation_p(x: Float64[ndarray, " a"], y: Float64[ndarray, " b"], paired: bool) -> float:
    from scipy.stats import permutation_test

    # permutations that are drawn depend on the order of the groups; p must not
    groups = (x, y) if x.mean() >= y.mean() else (y, x)
    result = permutation_test(
        groups,
        _difference,
        permutation_type="samples" if paired else "independent",
        vectorized=True,
        n_resamples=PERMUTATIONS,
        rng=np.random.default_rng(0),
    )
    return float(result.pvalue)


def _difference(x: ndarray, y: ndarray, axis: int) -> ndarray | np.float64:
    return np.round(x.mean(axis=axis) - y.mean(axis=axis), DIGITS)
