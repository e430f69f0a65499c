"""Claims about runs: a rule, the numbers over seeds that it asks for, and an answer.

`report.numbers` says how a number is decided. A package registers a function that returns its
claims by an entry point of the group `mecheval.claims`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mecheval.core.errors import InvalidInput
from mecheval.core.registry import Registry
from mecheval.report.evidence import Evidence
from mecheval.report.numbers import Number, combine, decide, limits
from mecheval.report.study import Study
from mecheval.report.tables import json_value
from mecheval.results.archive import KEPT
from mecheval.results.plan import PLAN

Numbers = Callable[[Evidence], Iterable[Number]]

claims = Registry("claim")  # functions that return claims


@dataclass(frozen=True)
class Claim:
    """A statement, its source and our rule for it.

    `numbers` reads the runs of `recipe`, joined with those of the recipes in `also`. `seen` says
    that these runs had been looked at when the rule was written.
    """

    name: str
    recipe: str
    where: str
    says: str
    rule: str
    numbers: Numbers
    also: Sequence[str] = ()
    seen: bool = False

    def check(self, study: Study, *others: Study) -> "Finding":
        """Return the answer that studies of one scale give."""
        evidence = Evidence(_joined(study, others) if others else study)
        return Finding(self, study.scale, decide(list(self.numbers(evidence))))


def claim(
    recipe: str,
    where: str,
    *,
    says: str,
    rule: str,
    also: Sequence[str] = (),
    seen: bool = False,
) -> Callable[[Numbers], Claim]:
    """Make a claim of the function that yields its numbers; its name is the function's."""

    def make(numbers: Numbers) -> Claim:
        name = numbers.__name__.replace("_", "-")
        return Claim(name, recipe, where, says, rule, numbers, also, seen)

    return make


@dataclass(frozen=True)
class Finding:
    """A claim and the numbers of runs of a scale."""

    claim: Claim
    scale: str | None
    numbers: Sequence[Number]

    @property
    def answer(self) -> str:
        return combine([number.answer for number in self.numbers])

    @property
    def limits(self) -> str:
        """Return the sentence on what so few seeds cannot exclude, if there is one."""
        return limits(self.numbers)


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
        for study in (one for one in studies if one.recipe == claim.recipe):
            same = [one for one in studies if one.scale == study.scale]
            others = {one.recipe: one for one in same if one.recipe in claim.also}
            if len(others) == len(claim.also):
                findings.append(claim.check(study, *others.values()))
    return findings


def to_records(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return findings as JSON has them."""
    records = []
    for finding in findings:
        claim = finding.claim
        record = {n: getattr(claim, n) for n in ("name", "recipe", "where", "says", "rule", "seen")}
        record |= {"scale": finding.scale, "answer": finding.answer, "limits": finding.limits}
        record["numbers"] = []
        for number in finding.numbers:
            fields = asdict(number).items()
            record["numbers"].append({n: json_value(value) for n, value in fields})
        records.append(record)
    return records


def _joined(study: Study, others: Sequence[Study]) -> Study:
    """Join studies; a run that several have, since one reused it, counts once."""
    studies = [study]
    for other in others:
        known = {key for one in studies for key in one.runs["key"]}
        tables = {}
        for name in ("runs", "rows", "curves"):
            table = getattr(other, name)
            tables[name] = table[~table["key"].isin(known)]
        studies.append(replace(other, **tables))
    return Study.joined(studies)


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
