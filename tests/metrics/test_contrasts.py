import math
from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import ttest_ind, ttest_rel

from mecheval.metrics.statistics import (
    ALPHA,
    CORRECTIONS,
    adjust_p,
    contrast,
    seeds_needed,
    smallest_p,
)


def seeds(values, first=0):
    return {seed: float(value) for seed, value in enumerate(values, first)}


def by_hand(x, y, paired):
    """Enumerate every assignment to groups: twice the share on the observed side."""
    if paired:
        signed = [
            sum(s * (a - b) for s, a, b in zip(signs, x, y, strict=True)) / len(x)
            for signs in product((1, -1), repeat=len(x))
        ]
    else:
        every = [*x, *y]
        sides = [set(side) for side in combinations(range(len(every)), len(x))]
        signed = [
            np.mean([every[i] for i in side])
            - np.mean([every[i] for i in range(len(every)) if i not in side])
            for side in sides
        ]
    seen = np.mean(x) - np.mean(y)
    tails = [sum(v >= seen - 1e-9 for v in signed), sum(v <= seen + 1e-9 for v in signed)]
    return min(1.0, 2 * min(tails) / len(signed))


def test_p_is_the_share_of_all_ways_to_swap_the_pairs():
    found = contrast(seeds([0.9, 0.8, 0.7]), seeds([0.5, 0.5, 0.5]))
    assert found.paired
    assert found.difference == pytest.approx(0.3)
    assert found.p == 0.25  # two of eight ways are as far apart: this one and its mirror
    # differences 0.3, 0.2, −0.1: of 8 sums of signs 0.4 is reached by 0.4 and 0.6, so 2 × 2 / 8
    assert contrast(seeds([0.8, 0.7, 0.4]), seeds([0.5, 0.5, 0.5])).p == 0.5


def test_p_of_other_seeds_is_the_share_of_all_ways_to_deal_them_out():
    found = contrast(seeds([4.0, 5.0, 6.0]), seeds([1.0, 2.0, 3.0], first=10))
    assert not found.paired
    assert found.p == pytest.approx(2 / 20)
    assert contrast(seeds([4.0, 5.0]), seeds([1.0, 2.0, 3.0], first=10)).p == pytest.approx(2 / 10)


@pytest.mark.parametrize("paired", [True, False])
def test_p_agrees_with_counting_also_among_ties(paired):
    rng = np.random.default_rng(0)
    for n in (2, 3, 5):
        for _ in range(10):
            x, y = (
                rng.integers(0, 4, size=(2, n)) / 1000 + 0.9
            )  # few values: many ties, none exact in binary
            found = contrast(seeds(x), seeds(y, first=0 if paired else 100))
            assert found.p == pytest.approx(by_hand(x, y, paired)), (x, y)


def test_swapping_the_groups_flips_the_sign_and_keeps_p():
    rng = np.random.default_rng(1)
    for n, other, first in (
        (4, 4, 0),
        (16, 16, 0),
        (4, 5, 100),
        (12, 9, 100),
    ):  # few and drawn, paired and not
        a, b = seeds(rng.random(n)), seeds(rng.random(other), first)
        there, back = contrast(a, b), contrast(b, a)
        assert back.difference == pytest.approx(-there.difference)
        assert (back.low, back.high) == pytest.approx((-there.high, -there.low))
        assert (back.p, back.smallest_p) == (there.p, there.smallest_p)
        assert contrast(a, b) == there


def test_seeds_in_both_groups_are_pairs_and_what_they_share_is_no_spread():
    hard = np.array([0.0, 0.3, 0.6, 0.9, 0.2, 0.5])  # documents of a seed are easy or hard for both
    small = np.array([0.05, 0.04, 0.06, 0.05, 0.05, 0.04])
    pairs = contrast(seeds(hard + small), seeds(hard))
    others = contrast(seeds(hard + small), seeds(hard, first=100))
    told = contrast(seeds(hard + small), seeds(hard), same_documents=False)
    assert (pairs.paired, others.paired, told.paired) == (True, False, False)
    assert pairs.difference == pytest.approx(others.difference)
    assert pairs.p == 2 / 64
    assert others.p == told.p > 0.5
    assert pairs.high - pairs.low < 0.05 < others.high - others.low


def test_a_seed_that_only_one_group_has_is_left_out_of_pairs():
    found = contrast({0: 0.5, 1: 0.6, 2: 0.7, 9: 0.0}, {0: 0.4, 1: 0.5, 2: 0.6})
    assert (found.seeds_a, found.seeds_b, found.mean_a) == (3, 3, pytest.approx(0.6))
    assert found.difference == pytest.approx(0.1)
    one = contrast({0: 0.5, 1: 0.6}, {1: 0.4, 2: 0.5})  # one pair is none
    assert (one.paired, one.seeds_a, one.seeds_b) == (False, 2, 2)


def test_intervals_are_those_of_student_and_welch():
    rng = np.random.default_rng(2)
    x, y = rng.random(5), rng.random(7)
    found, theirs = (
        contrast(seeds(x), seeds(y, first=50)),
        ttest_ind(x, y, equal_var=False).confidence_interval(0.95),
    )
    assert (found.low, found.high) == pytest.approx(tuple(theirs))
    found, theirs = contrast(seeds(x), seeds(y[:5])), ttest_rel(x, y[:5]).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(theirs))


@pytest.mark.parametrize("first", [0, 100])
def test_about_19_of_20_intervals_hold_the_truth_also_with_three_seeds(first):
    rng = np.random.default_rng(3)
    found = [
        contrast(seeds(rng.normal(0.7, 0.1, 3)), seeds(rng.normal(0.5, 0.1, 3), first))
        for _ in range(300)
    ]
    held = sum(one.low <= 0.2 <= one.high for one in found)
    assert 0.91 * 300 <= held <= 0.99 * 300


@pytest.mark.parametrize(("first", "n"), [(0, 7), (100, 5)])
def test_equal_groups_are_told_apart_no_more_often_than_promised(first, n):
    rng = np.random.default_rng(4)
    trials = 300
    drawn = rng.beta(2, 2, size=(trials, 2, n))
    p = np.array([contrast(seeds(a), seeds(b, first)).p for a, b in drawn])
    for level in (0.05, 0.2):
        most = trials * level + 3 * math.sqrt(trials * level * (1 - level))
        assert (p <= level).sum() <= most
    assert (p <= 0.2).sum() > 0.1 * trials  # and it is not afraid of everything


def test_among_equal_groups_holm_finds_anything_at_all_in_one_of_twenty_studies():
    rng = np.random.default_rng(5)
    trials, groups = 100, 3
    finds = 0
    for _ in range(trials):
        drawn = [seeds(rng.random(8)) for _ in range(groups)]
        finds += (
            adjust_p(np.array([contrast(a, b).p for a, b in combinations(drawn, 2)])).min() <= ALPHA
        )
    assert finds <= trials * ALPHA + 3 * math.sqrt(trials * ALPHA)


def test_six_seeds_are_enough_for_an_obvious_effect():
    rng = np.random.default_rng(6)
    a, b = rng.normal(0.95, 0.02, 6), rng.normal(0.3, 0.1, 6)
    for found in (contrast(seeds(a), seeds(b)), contrast(seeds(a), seeds(b, first=100))):
        assert found.p <= ALPHA
        assert found.p == pytest.approx(found.smallest_p)
        assert 0 < found.low < 0.65 < found.high


def test_groups_without_spread_have_an_interval_without_width():
    for first in (0, 100):
        found = contrast(seeds([1.0] * 3), seeds([0.25] * 3, first))
        assert (found.low, found.difference, found.high) == (0.75, 0.75, 0.75)
        same = contrast(seeds([0.1] * 3), seeds([0.1] * 3, first))
        assert (same.difference, same.p) == (0.0, 1.0)


def test_no_numbers_give_a_smaller_p_than_the_smallest():
    for n in (2, 3, 6, 15):
        far = seeds(np.linspace(1, 2, n))
        for first in (0, 100):
            found = contrast(far, seeds(np.linspace(-2, -1, n), first))
            assert found.p == pytest.approx(found.smallest_p)
    assert [smallest_p(n, n, paired=True) for n in (2, 3, 5, 6)] == [0.5, 0.25, 0.0625, 0.03125]
    assert smallest_p(3, 4, paired=False) == pytest.approx(2 / 35)


def test_holm_by_hand():
    # sorted 0.01 0.02 0.03 0.04, times 4 3 2 1: 0.04 0.06 0.06 0.04, and never below the one before
    assert adjust_p(np.array([0.04, 0.01, 0.03, 0.02])) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert adjust_p(np.array([0.9, 0.5])) == pytest.approx([1.0, 1.0])


def test_fdr_by_hand():
    # times 4 / rank: 0.04 0.04 0.04 0.8, and never above the one after
    assert adjust_p(np.array([0.8, 0.01, 0.03, 0.02]), "fdr") == pytest.approx(
        [0.8, 0.04, 0.04, 0.04]
    )
    assert adjust_p(np.array([0.8, 0.01]), "none") == pytest.approx([0.8, 0.01])


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_no_corrected_p_is_below_the_corrected_smallest(correction):
    rng = np.random.default_rng(7)
    floors = rng.choice([0.5, 0.25, 0.0625, 0.03125], size=20)
    least = adjust_p(floors, correction)
    for _ in range(50):
        assert (
            adjust_p(floors + (1 - floors) * rng.random(20) ** 4, correction) >= least - 1e-12
        ).all()
    assert len(adjust_p(np.array([]), correction)) == 0


def test_the_seeds_that_are_needed_are_just_enough():
    assert [seeds_needed(tests) for tests in (1, 2, 3, 21)] == [6, 7, 7, 10]
    assert seeds_needed(21, "fdr") == seeds_needed(21, "none") == 6
    assert seeds_needed(1000) is None
