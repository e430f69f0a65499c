"""Claims asked of runs: each has a rule that is written down beforehand, numbers with intervals over seeds, an answer.

A number is a mean over seeds with Student's interval: seeds are the unit. It answers for itself: its interval is on the
right side of a bound, on the wrong side, or on both. A claim holds if all its numbers do, and does not hold if one does
not.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mecheval.core.errors import InvalidInput
from mecheval.interventions.verdict import UNSOLVED
from mecheval.metrics.statistics import LEAST, Bounds, contrast, seed_interval
from mecheval.report import labels
from mecheval.report.evidence import Evidence, Seeds
from mecheval.report.study import Study
from mecheval.report.tables import json_value
from mecheval.results.archive import KEPT
from mecheval.results.plan import PLAN

HOLDS, FAILS, UNTOLD = "holds", "does not hold", "cannot be told"
SEEDS = 3  # that an answer needs
PERCENT, POINTS, COUNT = "%", "points", "seeds"


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
    answer: str = UNTOLD

    def __str__(self) -> str:
        if self.unit == COUNT:
            return labels.seed_count(int(self.value), self.seeds)
        if not self.seeds:
            return "not measured"
        sign = "+" if self.unit == POINTS else ""
        ends = f" [{self.low:{sign}.1f}, {self.high:{sign}.1f}]" if self.seeds >= LEAST else ""
        return f"{self.value:{sign}.1f} {self.unit}{ends}, {self.seeds} seed{'s' if self.seeds > 1 else ''}"


@dataclass(frozen=True)
class Claim:
    """`says` is the paper's, at `where`; `rule` is ours; `recipe` makes the runs that `ask` reads."""

    name: str
    recipe: str
    where: str
    says: str
    rule: str
    ask: Callable[[Evidence], Iterable[Number]]

    def found(self, study: Study) -> "Finding":
        return Finding(self, study.scale, list(self.ask(Evidence(study))))


@dataclass(frozen=True)
class Finding:
    """What runs of a scale say to a claim."""

    claim: Claim
    scale: str | None
    numbers: Sequence[Number]

    @property
    def answer(self) -> str:
        said = {number.answer for number in self.numbers}
        if FAILS in said:
            return FAILS
        return HOLDS if said == {HOLDS} else UNTOLD


def mean(what: str, seeds: Seeds, bounds: Bounds = (0.0, 1.0)) -> Number:
    """Return the mean of fractions over seeds; `bounds` are what is possible for it."""
    values = list(seeds.values())
    if len(values) < LEAST:
        return Number(what, PERCENT, 100 * sum(values), np.nan, np.nan, len(values))
    low, high = seed_interval(values, bounds)
    return Number(what, PERCENT, 100 * float(np.mean(values)), 100 * low, 100 * high, len(values))


def difference(what: str, a: Seeds, b: Seeds) -> Number:
    """Of a less b, pair by pair where the seeds are the same."""
    if (seeds := min(len(a), len(b))) < LEAST:
        return Number(what, POINTS, np.nan, np.nan, np.nan, 0)
    found = contrast(a, b, bounds=(-1.0, 1.0))
    return Number(what, POINTS, 100 * found.difference, 100 * found.low, 100 * found.high, seeds)


def agreed(what: str, wanted: str, mechanisms: Sequence[str]) -> Number:
    """All seeds must have the wanted mechanism. A model that has not learned the task has none to be told."""
    number = Number(what, COUNT, float(mechanisms.count(wanted)), np.nan, np.nan, len(mechanisms))
    other = any(found not in (wanted, UNSOLVED) for found in mechanisms)
    return _bounded(number, wanted, number.value == number.seeds, other)


def at_least(bound: int, number: Number) -> Number:
    return _bounded(number, f"≥ {bound}", number.low >= bound, number.high < bound)


def at_most(bound: int, number: Number) -> Number:
    return _bounded(number, f"≤ {bound}", number.high <= bound, number.low > bound)


def _bounded(number: Number, bound: str, holds: bool, fails: bool) -> Number:
    answer = UNTOLD if number.seeds < SEEDS else HOLDS if holds else FAILS if fails else UNTOLD
    return replace(number, bound=bound, answer=answer)


def asked(claims: Sequence[Claim], folders: Sequence[Path]) -> list[Finding]:
    """Of every sweep or kept study among the folders and right below them, in the order of the claims."""
    studies = [Study.read(folder) for folder in _studies(folders)]
    return [claim.found(study) for claim in claims for study in studies if study.recipe == claim.recipe]


def records(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """For programs."""
    return [
        {
            **{name: getattr(finding.claim, name) for name in ("name", "recipe", "where", "says", "rule")},
            "scale": finding.scale,
            "answer": finding.answer,
            "numbers": [
                {name: json_value(value) for name, value in asdict(number).items()} for number in finding.numbers
            ],
        }
        for finding in findings
    ]


def _studies(folders: Sequence[Path]) -> list[Path]:
    found = []
    for folder in folders:
        if not folder.is_dir():
            raise InvalidInput(f"DIR={str(folder)!r} must be a folder with runs")
        inner = [folder, *sorted(folder.iterdir())]
        own = [place for place in inner if any((place / name).exists() for name in (PLAN, KEPT))]
        if not own:
            raise InvalidInput(f"DIR={str(folder)!r} has no sweep in it")
        found += own
    return found
