import math

import numpy as np
import pytest
from scipy.stats import t

from mecheval.metrics.statistics import (
    MANY,
    interval,
    middle,
    proportion_interval,
    resampled,
    seed_interval,
)

Z = 1.959963984540054  # the 97.5 % quantile of the normal distribution


def wilson(right, n):
    """Wilson (1927): the shares p that are at most Z standard errors of p from the observed one."""
    p = right / n
    middle = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n)) / (1 + Z * Z / n)
    return middle - half, middle + half


@pytest.mark.parametrize(
    ("right", "n"), [(0, 8), (8, 8), (0, 1), (1, 1), (1, 2), (5, 1024), (512, 1024), (1023, 1024)]
)
def test_the_interval_of_a_share_is_wilsons(right, n):
    low, high = interval(np.repeat([1.0, 0.0], [right, n - right]))
    assert (low, high) == pytest.approx(wilson(right, n), abs=1e-12)
    assert 0 <= low <= right / n <= high <= 1


def test_all_wrong_is_not_certainly_never_right():
    low, high = interval(np.zeros(8))
    assert low == 0
    assert high == pytest.approx(Z * Z / (8 + Z * Z))
    low, high = interval(np.ones(8))
    assert low == pytest.approx(8 / (8 + Z * Z))
    assert high == 1


def test_a_mean_lies_in_its_interval_and_more_documents_make_it_narrower():
    drawn = np.random.default_rng(0).exponential(size=4096)
    widths = []
    for n in (16, 256, 4096):
        low, high = interval(drawn[:n])
        assert low < drawn[:n].mean() < high
        widths.append(high - low)
    assert widths[0] > 2 * widths[1] > 4 * widths[2]


def test_a_large_sample_has_the_interval_of_the_normal_distribution():
    drawn = np.random.default_rng(1).normal(3.0, 2.0, size=2000)
    error = drawn.std() / math.sqrt(len(drawn))
    assert interval(drawn) == pytest.approx(
        (drawn.mean() - Z * error, drawn.mean() + Z * error), abs=0.2 * error
    )


def test_the_same_values_have_the_same_interval_whatever_else_was_asked():
    drawn = np.random.default_rng(2).random(100)
    first = interval(drawn)
    for n in range(3, 13):  # more than are remembered
        interval(drawn[:n])
    assert interval(drawn.copy()) == first
    assert interval(np.random.default_rng(3).random(100)) != first


def test_about_19_of_20_intervals_hold_the_truth():
    rng = np.random.default_rng(4)
    means = [interval(rng.exponential(size=60)) for _ in range(200)]
    shares = [interval((rng.random(60) < 0.8).astype(float)) for _ in range(200)]
    for intervals, truth in ((means, 1.0), (shares, 0.8)):
        held = sum(low <= truth <= high for low, high in intervals)
        assert 0.87 * 200 <= held <= 0.99 * 200


def test_a_sample_without_spread_is_an_interval_without_width():
    assert interval(np.full(20, 0.3)) == pytest.approx((0.3, 0.3), abs=1e-14)
    assert interval(np.array([0.7])) == pytest.approx((0.7, 0.7), abs=1e-14)


def test_where_resampling_ends_the_interval_hardly_changes():
    drawn = np.random.default_rng(5).exponential(size=MANY + 1)
    resampled_width, normal_width = (
        high - low for low, high in (interval(drawn[:MANY]), interval(drawn))
    )
    assert resampled_width == pytest.approx(normal_width, rel=0.1)
    error = drawn.std(ddof=1) / math.sqrt(len(drawn))
    assert interval(drawn) == pytest.approx(
        (drawn.mean() - Z * error, drawn.mean() + Z * error), rel=1e-12
    )


def test_cells_are_resampled_by_the_same_documents():
    """So that a difference of cells has the spread of the difference, not that of both."""
    one = np.random.default_rng(6).random(50)
    first, second = resampled(np.stack([one, one + 0.25]))
    assert first.std() > 0.01
    np.testing.assert_allclose(second - first, 0.25, rtol=1e-12)
    np.testing.assert_allclose(first, resampled(one), rtol=1e-12)


def test_nan_is_no_document():
    values = np.random.default_rng(7).random(40)
    values[::4] = np.nan
    means = resampled(values)
    there = values[~np.isnan(values)]
    assert there.min() < means.min() < there.mean() < means.max() < there.max()
    low, high = middle(means)
    assert low < there.mean() < high
    assert np.isnan(resampled(np.full(5, np.nan))).all()


def old_interval(values, lows, highs):
    """The formula that this project had before: seeds drawn again, each with its documents."""
    rng = np.random.default_rng(len(values))
    drawn = rng.integers(len(values), size=(2000, len(values)))
    spread = (highs - lows) / (2 * Z)
    means = (values[drawn] + spread[drawn] * rng.standard_normal(drawn.shape)).mean(axis=1)
    return np.quantile(means, 0.025), np.quantile(means, 0.975)


def simulated(seeds, studies, truth=0.6, spread=0.1, documents=1024):
    """Studies of so many seeds: each seed's true accuracy, measured on a sample of documents."""
    rng = np.random.default_rng(seeds)
    accuracies = rng.normal(truth, spread, size=(studies, seeds))
    noise = np.sqrt(truth * (1 - truth) / documents)
    return accuracies + noise * rng.standard_normal(accuracies.shape), noise


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_the_interval_over_seeds_covers_the_truth_as_often_as_it_says(seeds):
    values, _ = simulated(seeds, studies=3000)
    ends = np.array([seed_interval(study) for study in values])
    coverage = np.mean((ends[:, 0] <= 0.6) & (ends[:, 1] >= 0.6))
    assert 0.93 <= coverage <= 0.97


def test_the_bootstrap_over_three_seeds_would_fail_that_test():
    values, noise = simulated(3, studies=500)
    ends = [old_interval(study, study - Z * noise, study + Z * noise) for study in values]
    assert np.mean([low <= 0.6 <= high for low, high in ends]) < 0.85


def test_an_interval_over_seeds_is_students_cut_to_its_bounds():
    values = [0.95, 0.99, 0.7]
    ends = t.interval(0.95, 2, loc=np.mean(values), scale=np.std(values, ddof=1) / math.sqrt(3))
    assert seed_interval(values) == pytest.approx(ends)
    assert ends[1] > 1
    assert seed_interval(values, (0.0, 1.0)) == pytest.approx((ends[0], 1.0))
    assert seed_interval([0.5, 0.5, 0.5]) == (0.5, 0.5)
    assert np.isnan(seed_interval([0.5])).all()


def test_three_of_three_seeds_are_no_certainty():
    assert proportion_interval(3, 3) == pytest.approx(wilson(3, 3))
    assert [round(100 * end) for end in proportion_interval(3, 3)] == [44, 100]
