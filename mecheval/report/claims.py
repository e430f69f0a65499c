"""Claims about runs: a rule that is fixed beforehand, numbers with intervals over seeds, an answer.

A number is a mean over seeds with Student's interval: seeds are the unit. Its interval is on the
right side of a bound, on the wrong side, or on both. A claim holds if all its numbers do, and does
not hold if one does not. A package registers a function that returns its claims by an entry point
of the group `mecheval.claims`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mecheval.core.errors import InvalidInput
from mecheval.core.registry import Registry
from mecheval.interventions.verdict import UNSOLVED
from mecheval.metrics.statistics import LEAST, Bounds, contrast, seed_interval
from mecheval.report import labels
from mecheval.report.evidence import Evidence, Seeds
from mecheval.report.study import Study
from mecheval.report.tables import json_value
from mecheval.results.archive import KEPT
from mecheval.results.plan import PLAN

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "cannot be told"
SEEDS = 3  # an answer needs so many
PERCENT, POINTS, COUNT = "%", "points", "seeds"

claims = Registry("claim")  # functions that return claims


@dataclass(frozen=True)
class Number:
    """A mean in per cent, a difference in points, or how many seeds have a mechanism."""

    what: str
    unit: str
    value: float
    low: float
    high: float
    seeds: int
    bound: str = ""
    answer: str = UNDECIDED

    def __str__(self) -> str:
        if self.unit == COUNT:
            return labels.seed_count(int(self.value), self.seeds)
        if not self.seeds:
            return "not measured"
        sign = "+" if self.unit == POINTS else ""
        ends = f" [{self.low:{sign}.1f}, {self.high:{sign}.1f}]" if self.seeds >= LEAST else ""
        seeds = f"{self.seeds} seed{'s' * (self.seeds > 1)}"
        return f"{self.value:{sign}.1f} {self.unit}{ends}, {seeds}"


@dataclass(frozen=True)
class Claim:
    """A statement, its source and our rule for it; `numbers` reads the runs of `recipe`."""

    name: str
    recipe: str
    where: str
    says: str
    rule: str
    numbers: Callable[[Evidence], Iterable[Number]]

    def check(self, study: Study) -> "Finding":
        """Return the answer that a study gives."""
        return Finding(self, study.scale, list(self.numbers(Evidence(study))))


@dataclass(frozen=True)
class Finding:
    """A claim and the numbers of runs of a scale."""

    claim: Claim
    scale: str | None
    numbers: Sequence[Number]

    @property
    def answer(self) -> str:
        answers = {number.answer for number in self.numbers}
        if FAILS in answers:
            return FAILS
        return HOLDS if answers == {HOLDS} else UNDECIDED


def mean(what: str, seeds: Seeds, bounds: Bounds = (0.0, 1.0)) -> Number:
    """Return the mean of fractions over seeds; `bounds` are what is possible for it."""
    values = list(seeds.values())
    if len(values) < LEAST:
        return Number(what, PERCENT, 100 * float(sum(values)), np.nan, np.nan, len(values))
    low, high = seed_interval(values, bounds)
    return Number(what, PERCENT, 100 * float(np.mean(values)), 100 * low, 100 * high, len(values))


def difference(what: str, a: Seeds, b: Seeds) -> Number:
    """Return the difference a − b, over pairs of equal seeds where there are any."""
    if (seeds := min(len(a), len(b))) < LEAST:
        return Number(what, POINTS, np.nan, np.nan, np.nan, 0)
    found = contrast(a, b, bounds=(-1.0, 1.0))
    return Number(what, POINTS, 100 * found.difference, 100 * found.low, 100 * found.high, seeds)


def agreed(what: str, mechanism: str, mechanisms: Sequence[str]) -> Number:
    """Count the seeds with a mechanism; it holds for all of them or not at all.

    A model that has not learned the task has no mechanism and decides nothing.
    """
    count = float(mechanisms.count(mechanism))
    number = Number(what, COUNT, count, np.nan, np.nan, len(mechanisms))
    others = set(mechanisms) - {mechanism, UNSOLVED}
    return _decided(number, mechanism, count == number.seeds, bool(others))


def at_least(bound: int, number: Number) -> Number:
    """Decide whether a number is at least a bound, by its interval."""
    return _decided(number, f"≥ {bound}", number.low >= bound, number.high < bound)


def at_most(bound: int, number: Number) -> Number:
    """Decide whether a number is at most a bound, by its interval."""
    return _decided(number, f"≤ {bound}", number.high <= bound, number.low > bound)


def _decided(number: Number, bound: str, holds: bool, fails: bool) -> Number:
    answer = HOLDS if holds else FAILS if fails else UNDECIDED
    return replace(number, bound=bound, answer=answer if number.seeds >= SEEDS else UNDECIDED)


def all_claims() -> list[Claim]:
    """Return every registered claim."""
    return [claim for name in claims.names() for claim in claims.get(name)()]


def read_studies(folders: Sequence[Path]) -> list[Study]:
    """Read every study in the folders and right below them."""
    return [Study.read(folder) for folder in _study_folders(folders)]


def check_claims(claims: Sequence[Claim], folders: Sequence[Path]) -> list[Finding]:
    """Check claims, in their order, against every study in the folders and right below them."""
    return check_studies(claims, read_studies(folders))


def check_studies(claims: Sequence[Claim], studies: Sequence[Study]) -> list[Finding]:
    """Check claims, in their order, against every study of their recipe."""
    findings = []
    for claim in claims:
        findings += [claim.check(study) for study in studies if study.recipe == claim.recipe]
    return findings


def to_records(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return findings as JSON has them."""
    records = []
    for finding in findings:
        claim = finding.claim
        record = {n: getattr(claim, n) for n in ("name", "recipe", "where", "says", "rule")}
        record |= {"scale": finding.scale, "answer": finding.answer, "numbers": []}
        for number in finding.numbers:
            fields = asdict(number).items()
            record["numbers"].append({n: json_value(value) for n, value in fields})
        records.append(record)
    return records


def _study_folders(folders: Sequence[Path]) -> list[Path]:
    result = []
    for folder in folders:
        if not folder.is_dir():
            raise InvalidInput(f"DIR={str(folder)!r} must be a folder with runs")
        places = [folder, *sorted(folder.iterdir())]
        studies = [p for p in places if (p / PLAN).exists() or (p / KEPT).exists()]
        if not studies:
            raise InvalidInput(f"DIR={str(folder)!r} has no sweep in it")
        result += studies
    return result
