"""What seeds show about a bound: by the rules, with planted seeds, and how often they err.

The simulations draw studies whose truth is known. A seed either solves a task (99 %) or stays at
chance (25 %), which is what made means of three seeds err.
"""

from math import sqrt

import numpy as np
import pytest

from mecheval.metrics.statistics import ALPHA, exact_interval, proportion_interval, seed_interval
from mecheval.report.numbers import (
    FAILED,
    FAILS,
    HELD,
    HOLDS,
    NO_RUNS,
    UNDECIDED,
    at_least,
    at_most,
    combine,
    count_at_least,
    count_at_most,
    count_mechanism,
    decide,
    gaps,
    limits,
    no_worse,
    of_runs,
)

ERROR = ALPHA / 2
STUDIES = 600
SLACK = 3 * sqrt(ERROR * (1 - ERROR) / STUDIES)  # three standard errors of a simulated 2.5 %


def by_seed(values):
    return dict(enumerate(values))


def answer(number):
    return decide([number])[0].answer


def studies(solving, seeds, rng):
    """Accuracies of many studies, of seeds that solve the task or stay at chance."""
    solved = rng.random((STUDIES, seeds)) < solving
    return np.where(solved, 0.99, 0.25) + rng.normal(0, 0.003, (STUDIES, seeds))


# the rule for levels


@pytest.mark.parametrize(
    ("accuracies", "expected"),
    [
        ([0.97, 0.98, 0.99], HELD),
        ([0.10, 0.12, 0.11], FAILED),
        ([0.25, 0.98, 0.99], UNDECIDED),
        ([0.98, 0.99], UNDECIDED),
        ([0.9], UNDECIDED),
        ([0.97] * 6, HOLDS),
        ([0.97] * 5 + [0.25], UNDECIDED),
        ([0.97] * 8 + [0.25], HOLDS),
        ([0.25] * 6, FAILS),
    ],
)
def test_a_level_is_counted_and_takes_six_seeds_to_be_general(accuracies, expected):
    number = count_at_least(90, "", by_seed(accuracies))
    assert answer(number) == expected
    below = count_at_most(50, "", by_seed([1 - value for value in accuracies]))
    assert answer(below) == expected


def test_a_number_on_its_bound_is_on_the_right_side():
    assert count_at_least(90, "", by_seed([0.9, 0.89, 0.91])).value == 2
    assert count_at_most(90, "", by_seed([0.9, 0.89, 0.91])).value == 2


def test_a_count_says_its_interval_and_every_seed():
    number = count_at_least(90, "", by_seed([0.97, 0.98, 0.25]))
    assert str(number) == "2 of 3 seeds [9 %, 99 %]: 97.0, 98.0, 25.0"
    many = of_runs(count_at_least(90, "", by_seed([0.97] * 6 + [0.25])))
    assert str(many) == "6 of 7 runs [42 %, 100 %]: 25.0 to 97.0"
    assert str(count_at_least(90, "", {})) == "not measured"


def test_what_three_seeds_cannot_exclude_is_said():
    held, failed, split = (
        decide([count_at_least(90, "", by_seed(values))])
        for values in ([0.99] * 3, [0.2] * 3, [0.2, 0.99, 0.99])
    )
    assert limits(held) == "With 3 seeds a rate of failure up to 71 % cannot be excluded."
    assert limits(failed) == "With 3 seeds a rate of success up to 71 % cannot be excluded."
    assert limits(split) == limits([]) == ""


@pytest.mark.parametrize(
    ("mechanisms", "expected"),
    [
        (["induction"] * 3, HELD),
        (["mixed"] * 3, FAILED),
        (["induction"] * 6, HOLDS),
        (["induction", "induction", "mixed"], UNDECIDED),
        (["induction", "induction", "unsolved"], UNDECIDED),
        (["induction"] * 3 + ["unsolved"], HELD),
        ([], UNDECIDED),
    ],
)
def test_a_mechanism_is_counted_among_the_seeds_that_solve_the_task(mechanisms, expected):
    assert answer(count_mechanism("induction", "", mechanisms)) == expected


def test_seeds_without_a_mechanism_are_named():
    number = count_mechanism("induction", "Mamba", ["induction", "unsolved", "unsolved"])
    assert (number.what, number.seeds) == ("Mamba (2 of 3 seeds unsolved)", 1)


@pytest.mark.parametrize("seeds", [3, 6, 10])
@pytest.mark.parametrize("solving", [0.3, 0.5])
def test_a_level_that_half_of_all_seeds_miss_seldom_holds(solving, seeds):
    rng = np.random.default_rng(seeds)
    said = [
        answer(count_at_least(90, "", by_seed(study))) for study in studies(solving, seeds, rng)
    ]
    assert said.count(HOLDS) / STUDIES <= ERROR + SLACK


@pytest.mark.parametrize("seeds", [3, 6, 10])
def test_a_level_that_half_of_all_seeds_reach_seldom_fails(seeds):
    rng = np.random.default_rng(seeds)
    said = [answer(count_at_least(90, "", by_seed(study))) for study in studies(0.5, seeds, rng)]
    assert said.count(FAILS) / STUDIES <= ERROR + SLACK


def test_the_mean_of_three_seeds_would_be_above_a_bound_it_is_below_in_a_third_of_studies():
    """The mean is 77 %; three seeds that all solve the task show one above 90 %."""
    drawn = studies(0.7, 3, np.random.default_rng(0))
    by_mean = np.mean([seed_interval(study, (0.0, 1.0))[0] >= 0.9 for study in drawn])
    assert 0.25 < by_mean < 0.40
    counted = [decide([count_at_least(90, "", by_seed(study))])[0] for study in drawn]
    assert not any(number.answer == HOLDS for number in counted)
    assert np.mean([number.low <= 70 <= number.high for number in counted]) >= 0.95


def test_ten_seeds_are_enough_to_see_what_nearly_all_seeds_do():
    drawn = studies(0.95, 10, np.random.default_rng(1))
    said = [answer(count_at_least(90, "", by_seed(study))) for study in drawn]
    assert said.count(HOLDS) / STUDIES > 0.85  # 91 % of them have nine or ten


def test_the_exact_interval_never_covers_less_than_it_says_and_wilsons_does():
    from scipy.stats import binom

    def missed(interval, p):
        above = [k for k in range(4) if interval(k, 3)[0] > p]
        return float(binom.pmf(above, 3, p).sum())

    proportions = np.linspace(0.01, 0.99, 99)
    assert max(missed(exact_interval, p) for p in proportions) <= ERROR + 1e-9
    assert max(missed(proportion_interval, p) for p in proportions) > 0.07


# the rule for differences


@pytest.mark.parametrize(
    ("ask", "differences", "expected"),
    [
        (no_worse, [0.001, -0.002, 0.0], HOLDS),  # equal groups
        (no_worse, [0.10, 0.11, 0.12], HOLDS),
        (no_worse, [-0.10, -0.11, -0.12], FAILS),
        (no_worse, [-0.03, 0.02, 0.0], UNDECIDED),
        (no_worse, [0.0, 0.0], UNDECIDED),
        (no_worse, [0.0, 0.0, 0.0], HOLDS),
        (no_worse, [-0.05, -0.05, -0.05], FAILS),
    ],
)
def test_no_worse_has_a_margin_of_two_points(ask, differences, expected):
    assert answer(ask("", by_seed(differences))) == expected


def test_a_bound_is_of_the_mean_difference():
    gain = by_seed([0.10, 0.11, 0.12])
    assert answer(at_least(5, "", gain)) == answer(at_most(20, "", gain)) == HOLDS
    assert answer(at_least(20, "", gain)) == answer(at_most(5, "", gain)) == FAILS
    assert answer(at_least(11, "", gain)) == UNDECIDED


def test_seeds_are_compared_pair_by_pair():
    """They differ by 0.1 each, though seeds differ by more among themselves."""
    a = {0: 0.5, 1: 0.7, 2: 0.95, 9: 0.0}
    b = {0: 0.4, 1: 0.6, 2: 0.85}
    assert gaps(a, b) == pytest.approx(by_seed([0.1, 0.1, 0.1]))
    number = at_most(5, "", gaps(a, b))
    assert (number.value, number.low, number.high) == pytest.approx((10.0, 10.0, 10.0))
    assert str(number) == "+10.0 points [+10.0, +10.0], 3 seeds"
    assert str(at_most(5, "", gaps(a, {7: 0.1}))) == "not measured"


def test_the_interval_of_a_difference_is_students():
    """Of 7, 8, 9 points: 8 ± 4.303 / √3."""
    number = no_worse("", by_seed([0.07, 0.08, 0.09]))
    assert (number.low, number.high) == pytest.approx((5.516, 10.484), abs=1e-3)
    assert no_worse("", by_seed([-0.9, 0.9, 0.9])).high == 100.0  # cut to what is possible


@pytest.mark.parametrize(("true", "wrong"), [(-2.0, HOLDS), (-2.0, FAILS), (-5.0, HOLDS)])
def test_no_worse_errs_in_few_studies(true, wrong):
    rng = np.random.default_rng(2)
    drawn = rng.normal(true / 100, 0.02, (STUDIES, 3))
    said = [answer(no_worse("", by_seed(study))) for study in drawn]
    assert said.count(wrong) / STUDIES <= ERROR + SLACK


def test_two_equal_groups_of_two_kinds_of_seeds_seldom_differ():
    rng = np.random.default_rng(3)
    pairs = zip(studies(0.7, 3, rng), studies(0.7, 3, rng), strict=True)
    said = [answer(no_worse("", by_seed(a - b))) for a, b in pairs]
    assert said.count(FAILS) / STUDIES <= ERROR + SLACK


def test_a_difference_to_a_group_of_two_kinds_must_be_counted():
    """What the margin assumes: of such seeds a lucky three look no worse than perfect ones."""
    rng = np.random.default_rng(4)
    gap = studies(0.7, 3, rng) - 0.99  # 22 points in the mean
    lucky = [answer(no_worse("", by_seed(study))) for study in gap].count(HOLDS) / STUDIES
    assert 0.25 < lucky < 0.40
    counted = [answer(count_at_least(-2, "", by_seed(study))) for study in gap]
    assert HOLDS not in counted


# a claim of many numbers


def test_a_claim_of_many_numbers_is_corrected_for_them():
    """One p of 1 % is enough alone and not among fourteen; 0.1 % is."""
    rng = np.random.default_rng(5)
    equal = [no_worse("", by_seed(rng.normal(0, 0.02, 3))) for _ in range(13)]
    bad = no_worse("", by_seed([-0.10, -0.14, -0.18]))
    assert 0.025 / 14 < bad.p_fails < 0.025
    assert answer(bad) == FAILS
    assert decide([*equal, bad])[-1].answer == UNDECIDED
    worse = no_worse("", by_seed([-0.20, -0.201, -0.202]))
    assert decide([*equal, worse])[-1].answer == FAILS


@pytest.mark.slow
def test_a_claim_of_fourteen_true_numbers_seldom_fails_and_one_of_false_ones_seldom_holds():
    rng = np.random.default_rng(6)
    drawn = rng.normal(-0.02, 0.02, (300, 14, 3))  # each just on its bound
    slack = 3 * sqrt(ERROR * (1 - ERROR) / len(drawn))
    alone, corrected = [], []
    for study in drawn:
        numbers = [no_worse("", by_seed(differences)) for differences in study]
        alone.append(any(number.p_fails <= ERROR for number in numbers))
        corrected.append(combine([number.answer for number in decide(numbers)]))
    assert np.mean(alone) > 0.2
    assert corrected.count(FAILS) / len(drawn) <= ERROR + slack
    assert corrected.count(HOLDS) / len(drawn) <= ERROR + slack


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([HOLDS, HOLDS], HOLDS),
        ([HOLDS, HELD], HELD),
        ([HOLDS, UNDECIDED], UNDECIDED),
        ([HELD, UNDECIDED], UNDECIDED),
        ([UNDECIDED, FAILS], FAILS),
        ([HELD, UNDECIDED, FAILED], FAILED),
        ([FAILED, FAILS], FAILS),
        ([], NO_RUNS),
    ],
)
def test_a_claim_holds_only_if_all_its_numbers_do(answers, expected):
    assert combine(answers) == expected
