"""Intervals of means and proportions, and comparisons of two groups of seeds.

Documents are many, but a second training differs from the first by more than its documents do. So
over several runs the seed is the unit: a run is one observation, a mean over seeds has Student's
interval, and runs with the same seed, which saw the same documents, are a pair. Within one run the
document is the unit: Wilson's interval for right answers, one that allows for skewness for every
other mean. Documents are resampled for the confidence of a verdict.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, inf

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

CONFIDENCE, RESAMPLES = 0.95, 1000
ALPHA = 1 - CONFIDENCE
SKEWNESS = 1.5  # a sample shows less skewness than there is: the rare large values are not in it
TINY = 1e-9
UNSEEN = 0.5  # of a document of each extreme kind, which a sample may lack: Jeffreys' prior
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

    z = float(ndtri(1 - ALPHA / 2))
    centre, half = k + z * z / 2, z * np.sqrt(k * (n - k) / n + z * z / 4)
    low, high = (centre - half) / (n + z * z), (centre + half) / (n + z * z)
    return float(low if k else 0.0), float(high if k < n else 1.0)


@lru_cache
def exact_interval(k: int, n: int) -> Bounds:
    """Return the 95 % interval of Clopper and Pearson of the proportion k of n.

    It never covers less than 95 %. Wilson's is narrower and right on average over proportions, but
    with three seeds its lower end is missed in up to 8 % of studies instead of 2.5.
    """
    from scipy.stats import binomtest

    ends = binomtest(k, n).proportion_ci(CONFIDENCE, method="exact")
    return float(ends.low), float(ends.high)


def interval(values: Float64[ndarray, " n"], bounds: Bounds = ANY) -> Bounds:
    """Return the 95 % interval of a mean over documents, cut to `bounds`.

    It is Wilson's where every value is 0 or 1, otherwise that of `mean_interval`.
    """
    if np.isin(values, (0.0, 1.0)).all():
        return proportion_interval(int(values.sum()), len(values))
    return mean_interval(values, bounds)


def mean_interval(values: Float64[ndarray, " n"], bounds: Bounds = ANY) -> Bounds:
    """Return the 95 % interval of a mean with Hall's correction for skewness, cut to `bounds`.

    Likelihoods of a solved task and losses are skewed, so that a symmetric interval, or the middle
    of resampled means, misses on one side: docs/verdict.md has the coverage of all three. One
    document says nothing about others: its interval is `bounds`, if they are finite.
    """
    from scipy.special import stdtrit

    n, mean = len(values), float(values.mean())
    if n == 1 and np.isfinite(bounds).all():
        return bounds
    spread = float(values.std())
    if spread <= TINY * abs(mean):
        return mean, mean
    skewness = SKEWNESS * float((((values - mean) / spread) ** 3).mean()) / np.sqrt(n)
    t = stdtrit(n - 1, 1 - ALPHA / 2) * np.array([1.0, -1.0])
    if abs(skewness) > TINY:  # Hall (1992), On the removal of skewness by transformation
        t = 3 / skewness * (np.cbrt(1 + skewness * (t - skewness / 6)) - 1)
    low, high = np.clip(mean - t * spread / np.sqrt(n - 1), *bounds)
    return float(low), float(high)


def resampled(values: Float64[ndarray, "*cells n"]) -> Float64[ndarray, "*cells resamples"]:
    """Return means over documents drawn with replacement, the same documents for every cell.

    NaN marks a document that a cell does not have.
    """
    counts = _counts(values.shape[-1])
    there = ~np.isnan(values)
    with np.errstate(invalid="ignore"):  # a resample may have no document of a cell
        return (np.where(there, values, 0.0) @ counts) / (there @ counts)


def resampled_share(
    part: Float64[ndarray, " n"], whole: Float64[ndarray, " n"], seed: int = 0
) -> Float64[ndarray, " resamples"]:
    """Return the sum of `part` over that of `whole`, over documents drawn with replacement.

    A sample may lack the rarest documents, and no resample has what the sample lacks: if 30 of 30
    documents get all of it back, every resample says all. So each has two more documents, one that
    gets all back and one that gets nothing, with weights drawn by `seed` from Jeffreys' prior, and
    as large as the document is from which a piece of the whole comes. docs/verdict.md has the
    coverage. NaN marks a resample without a whole.
    """
    counts, total = _counts(len(part)), float(whole.sum())
    size = typical_size(whole)
    share = part.sum() / total if total else 0.0
    if np.abs(part - share * whole).max() <= TINY * size:
        return np.full(RESAMPLES, share)
    drawn = np.random.default_rng(seed).standard_gamma(UNSEEN, (2, RESAMPLES))
    sums = whole @ counts + size * drawn.sum(axis=0)
    again: Float64[ndarray, " resamples"] = np.full(RESAMPLES, np.nan)
    np.divide(part @ counts + size * drawn[0], sums, out=again, where=sums > 0)
    return again


def typical_size(values: Float64[ndarray, " n"]) -> float:
    """Return the mean of absolute values weighted by themselves: many zeros do not lower it."""
    total = float(np.abs(values).sum())
    return float((values**2).sum()) / total if total else 0.0


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
