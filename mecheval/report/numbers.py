"""Numbers over seeds that a claim rests on, and what each of them shows about its bound.

With one architecture some seeds solve a task and others stay at chance, so a mean of three seeds
with Student's interval is not to be trusted: were 70 % of seeds to solve it, three lucky ones in a
row, which happens in a third of all studies, would show a mean above any bound. A level is
therefore counted: how many seeds reach the bound, with the exact interval of Clopper and Pearson.
The question is whether more than half of all seeds do, and the answer errs in at most 2.5 % of
studies on either side, however seeds are distributed. It takes six seeds that agree; fewer that
agree are reported as what they are, with the rate of failure that they cannot exclude.

A difference of two groups is taken seed by seed and keeps Student's interval. "No worse than" has a
margin: the interval must end above minus the margin, and two equal groups can pass. This assumes
that the seeds of neither group are of two kinds; where they may be and the bound is far from 0, as
between a model that learns and one that does not, the differences are counted like levels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from mecheval.interventions.verdict import UNSOLVED
from mecheval.metrics.statistics import (
    ALPHA,
    LEAST,
    Seeds,
    adjust_p,
    exact_interval,
    seed_interval,
)

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "cannot be told"
HELD, FAILED = "held in every seed", "failed in every seed"
NO_RUNS = "no runs yet"
SEEDS = 3  # an answer needs so many
MARGIN = 2  # points that "no worse" may be worse
POINTS, COUNT, RUNS = "points", "seeds", "runs"
_ERROR = ALPHA / 2  # on either side
_SHOWN = 6  # seeds whose numbers are shown one by one


@dataclass(frozen=True)
class Number:
    """A difference in points, or how many seeds or runs are on the right side of a bound.

    `low` and `high` are its 95 % interval, that of a count in per cent. `p_holds` is the chance of
    seeds as good as these if the number were just on the wrong side, `p_fails` of seeds as bad if
    it were just on the right one. `values` are those of each seed, in per cent or points.
    """

    what: str
    unit: str
    value: float
    low: float
    high: float
    seeds: int
    bound: str = ""
    answer: str = UNDECIDED
    p_holds: float = 1.0
    p_fails: float = 1.0
    values: tuple[float, ...] = ()

    def __str__(self) -> str:
        if not self.seeds:
            return "not measured"
        if self.unit == POINTS:
            ends = f" [{self.low:+.1f}, {self.high:+.1f}]"
            return f"{self.value:+.1f} points{ends}, {self.seeds} seeds"
        unit = self.unit if self.seeds > 1 else self.unit.removesuffix("s")
        count = f"{int(self.value)} of {self.seeds} {unit}"
        return f"{count} [{self.low:.0f} %, {self.high:.0f} %]{_listed(self.values)}"


def count_at_least(bound: int, what: str, values: Mapping[Any, float]) -> Number:
    """Count the seeds whose number, a fraction, is at least a bound in per cent."""
    percent = _percent(values)
    return _count(what, f"≥ {bound}", [value >= bound for value in percent], percent)


def count_at_most(bound: int, what: str, values: Mapping[Any, float]) -> Number:
    """Count the seeds whose number, a fraction, is at most a bound in per cent."""
    percent = _percent(values)
    return _count(what, f"≤ {bound}", [value <= bound for value in percent], percent)


def count_mechanism(mechanism: str, what: str, mechanisms: Sequence[str]) -> Number:
    """Count the seeds with a mechanism among those that have one: an unsolved task has none."""
    solved = [name for name in mechanisms if name != UNSOLVED]
    if without := len(mechanisms) - len(solved):
        what += f" ({without} of {len(mechanisms)} seeds unsolved)"
    return _count(what, mechanism, [name == mechanism for name in solved], ())


def count_verdicts(allowed: Sequence[str], what: str, mechanisms: Sequence[str]) -> Number:
    """Count the seeds whose verdict is one of several, `unsolved` perhaps among them."""
    return _count(what, " or ".join(allowed), [name in allowed for name in mechanisms], ())


def of_runs(number: Number) -> Number:
    """Say that what was counted are runs of several widths and rates, not seeds of one cell."""
    return replace(number, unit=RUNS)


def gaps(a: Seeds, b: Seeds) -> Seeds:
    """Return the difference a − b of every seed that has both."""
    return {seed: a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())}


def at_least(bound: int, what: str, differences: Seeds) -> Number:
    """Ask whether a mean difference is at least a bound in points."""
    return _difference(what, bound, differences, 1)


def at_most(bound: int, what: str, differences: Seeds) -> Number:
    """Ask whether a mean difference is at most a bound in points."""
    return _difference(what, bound, differences, -1)


def no_worse(what: str, differences: Seeds) -> Number:
    """Ask whether a mean difference is above minus the margin: not worse, perhaps better."""
    return at_least(-MARGIN, what, differences)


def decide(numbers: Sequence[Number]) -> list[Number]:
    """Answer for each number of a claim.

    A claim holds only if all its numbers do, so that its error is at most that of one number. But
    it does not hold if a single one does not: there p is corrected for their number by Holm.
    """
    enough = [number.seeds >= SEEDS for number in numbers]
    worst = [number.p_fails for number, many in zip(numbers, enough, strict=True) if many]
    corrected = iter(adjust_p(np.array(worst, dtype=np.float64)))
    decided = []
    for number, many in zip(numbers, enough, strict=True):
        answer = _answer(number, float(next(corrected))) if many else UNDECIDED
        decided.append(replace(number, answer=answer))
    return decided


def combine(answers: Sequence[str]) -> str:
    """Return the answer of a claim from those of its numbers."""
    for answer in (FAILS, FAILED):
        if answer in answers:
            return answer
    if not answers:
        return NO_RUNS
    if UNDECIDED in answers:
        return UNDECIDED
    return HELD if HELD in answers else HOLDS


def limits(numbers: Sequence[Number]) -> str:
    """Say what counts of so few seeds cannot exclude, for a claim that every seed agrees on."""
    answer = combine([number.answer for number in numbers])
    if answer not in (HELD, FAILED):
        return ""
    counts = [number for number in numbers if number.answer == answer]
    fewest = min(number.seeds for number in counts)
    word, most = "failure", max(100 - number.low for number in counts)
    if answer == FAILED:
        word, most = "success", max(number.high for number in counts)
    return f"With {fewest} seeds a rate of {word} up to {most:.0f} % cannot be excluded."


def _answer(number: Number, p_fails: float) -> str:
    if number.p_holds <= _ERROR:
        return HOLDS
    if p_fails <= _ERROR:
        return FAILS
    if number.unit == COUNT and number.value in (0, number.seeds):
        return HELD if number.value else FAILED
    return UNDECIDED


def _count(what: str, bound: str, right: Sequence[bool], values: Sequence[float]) -> Number:
    k, n = sum(right), len(right)
    if not n:
        return Number(what, COUNT, np.nan, np.nan, np.nan, 0, bound)
    low, high = exact_interval(k, n)
    number = Number(what, COUNT, float(k), 100 * low, 100 * high, n, bound)
    p_holds, p_fails = _sign_test(k, n)
    return replace(number, p_holds=p_holds, p_fails=p_fails, values=tuple(values))


@cache
def _sign_test(k: int, n: int) -> tuple[float, float]:
    """Return the chance of k or more, and of k or fewer, if half of all seeds were right."""
    from scipy.stats import binom

    return float(binom.sf(k - 1, n, 0.5)), float(binom.cdf(k, n, 0.5))


def _difference(what: str, bound: int, differences: Seeds, sign: int) -> Number:
    values, n = np.array(_percent(differences)), len(differences)
    relation = f"{'≥' if sign > 0 else '≤'} {bound}"
    if n < LEAST:
        return Number(what, POINTS, np.nan, np.nan, np.nan, 0, relation)
    low, high = seed_interval(values, (-100.0, 100.0))
    number = Number(what, POINTS, float(values.mean()), low, high, n, relation)
    above, below = _student_test(sign * (values - bound))
    return replace(number, p_holds=above, p_fails=below, values=tuple(values.tolist()))


def _student_test(values: Float64[ndarray, " n"]) -> tuple[float, float]:
    """Return one-sided p that the mean is above 0, and that it is below."""
    from scipy.stats import t

    mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
    if not error:
        return (0.0, 1.0) if mean >= 0 else (1.0, 0.0)
    p = float(t.sf(mean / error, len(values) - 1))
    return p, 1 - p


def _percent(values: Mapping[Any, float]) -> list[float]:
    return [100 * float(value) for value in values.values()]


def _listed(values: Sequence[float]) -> str:
    if not values:
        return ""
    if len(values) <= _SHOWN:
        return ": " + ", ".join(f"{value:.1f}" for value in values)
    return f": {min(values):.1f} to {max(values):.1f}"
