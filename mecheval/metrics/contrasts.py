"""Two groups of runs compared, with the seed as the unit: how far apart they are, and how often chance alone does that.

Documents are many, but a second training differs from the first by more than its documents do. So a number of a run is
one observation, and runs with the same seed, which saw the same documents, are a pair.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import comb

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from mecheval.metrics.statistics import CONFIDENCE

CORRECTIONS = ("holm", "fdr", "none")
ALPHA = 1 - CONFIDENCE
LEAST = 2  # seeds
RESAMPLES = 20_000  # up to so many permutations a test is exact: 14 pairs, or 8 seeds against 8 others
DIGITS = 12  # of a difference: two sums in another order are still a tie

Seeds = Mapping[int, float]  # a number by the seed of its run


@dataclass(frozen=True, slots=True)
class Contrast:
    """Of a less b. `smallest_p` is the least that so many seeds can give, however far apart the groups are."""

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


def contrast(a: Seeds, b: Seeds, same_documents: bool = True) -> Contrast:
    """Of at least two seeds each. Where two or more are in both groups, those are compared pair by pair, others not.

    The interval is Student's, of the pairs' differences, or Welch's: seeds drawn again with replacement never leave the
    range of those seen, which with three holds the truth three times in four, not 19 times in 20.
    """
    assert min(len(a), len(b)) >= LEAST
    shared = sorted(a.keys() & b.keys()) if same_documents else []
    paired = len(shared) >= LEAST
    x, y = (np.array([own[seed] for seed in (shared if paired else sorted(own))], dtype=np.float64) for own in (a, b))
    difference, half = float(x.mean() - y.mean()), _half(x, y, paired)
    return Contrast(
        mean_a=float(x.mean()),
        mean_b=float(y.mean()),
        difference=difference,
        low=difference - half,
        high=difference + half,
        p=_p(x, y, paired),
        smallest_p=smallest_p(len(x), len(y), paired),
        seeds_a=len(x),
        seeds_b=len(y),
        paired=paired,
    )


def smallest_p(a: int, b: int, paired: bool) -> float:
    """When the observed order is the most extreme of all: once on either side."""
    ways = 2**a if paired else comb(a + b, a)
    return 2 / (ways if ways <= RESAMPLES else RESAMPLES + 1)


def corrected(p: Float64[ndarray, " tests"], correction: str = "holm") -> Float64[ndarray, " tests"]:
    """For so many tests at once: Holm bounds the chance of any false find, fdr (Benjamini and Hochberg) their share.

    No corrected p goes down when any p goes up, so the corrected smallest p's are the smallest corrected ones.
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
    """With how many pairs a test among so many can tell two groups apart at all; None where no number is enough."""
    for seeds in range(LEAST, 33):
        if corrected(np.full(tests, smallest_p(seeds, seeds, paired=True)), correction)[0] <= ALPHA:
            return seeds
    return None


def _half(x: Float64[ndarray, " a"], y: Float64[ndarray, " b"], paired: bool) -> float:
    """Of the interval's width."""
    from scipy.stats import t  # half a second to import

    if paired:
        freedom, variance = len(x) - 1.0, (x - y).var(ddof=1) / len(x)
    else:
        parts = np.array([own.var(ddof=1) / len(own) for own in (x, y)])
        variance = parts.sum()
        below = (parts**2 / np.array([len(x) - 1, len(y) - 1])).sum()
        freedom = variance**2 / below if below else 1.0  # without spread there is no width, whatever this is
    return float(t.ppf(1 - ALPHA / 2, freedom) * np.sqrt(variance))


def _p(x: Float64[ndarray, " a"], y: Float64[ndarray, " b"], paired: bool) -> float:
    from scipy.stats import permutation_test

    high, low = (x, y) if x.mean() >= y.mean() else (y, x)  # permutations that are drawn go by the order; p must not
    kind = "samples" if paired else "independent"
    rng = np.random.default_rng(0)
    found = permutation_test(
        (high, low), _difference, permutation_type=kind, vectorized=True, n_resamples=RESAMPLES, rng=rng
    )
    return float(found.pvalue)


def _difference(x: ndarray, y: ndarray, axis: int) -> ndarray | np.float64:
    return np.round(x.mean(axis=axis) - y.mean(axis=axis), DIGITS)
