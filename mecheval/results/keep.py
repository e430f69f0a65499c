"""From folders of runs to what is kept of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mecheval.core.errors import InvalidInput
from mecheval.core.spec import canonical_json
from mecheval.results.archive import FACTS, KEPT, Kept
from mecheval.results.plan import FINISHED, Plan
from mecheval.results.table import Results


def keep(folders: Sequence[Path], out: Path) -> Kept:
    """Writes the tables of all folders' runs into another, in place of those that may be there.

    A folder may be a kept study itself, `out` too: runs of the same sweep on several machines become one study, and
    runs that were made one by one come to the sweep that plans them.
    """
    if out.exists() and not (out / KEPT).exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise InvalidInput(f"out={str(out)!r} must be a new folder, or one with a kept study")
    studies = [_tables(folder) for folder in folders]
    first = studies[0]
    for folder, study in zip(folders, studies, strict=True):
        if not _belongs(study, first):
            raise InvalidInput(f"DIR={str(folder)!r} has {_said(study)}, and must not be mixed with {_said(first)}")
    kept = _joined(studies)
    kept.write(out)
    return kept


def _tables(folder: Path) -> Kept:
    results = Results(folder)
    plan = Plan.read(folder)
    states = plan.states(results) if plan else results.runs()
    if not results.runs():
        raise InvalidInput(f"DIR={str(folder)!r} has no runs")
    facts = results.facts()
    return Kept(
        plan.recipe if plan else None,
        plan.scale if plan else None,
        [_line(state, facts.get(state["key"], {})) for state in states],
        *(results.measured(name) for name in ("row_records", "curve")),
    )


def _line(state: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """The folder by its name alone, the facts as JSON."""
    texts = {name: canonical_json(facts[name]) if facts.get(name) else None for name in FACTS}
    return {**state, "folder": Path(state["folder"]).name, **texts}


def _belongs(study: Kept, first: Kept) -> bool:
    if study.recipe is None:
        return first.recipe is None or {line["key"] for line in study.runs} <= {line["key"] for line in first.runs}
    return (study.recipe, study.scale) == (first.recipe, first.scale)


def _joined(studies: Sequence[Kept]) -> Kept:
    """Each run once: of those in several studies one that is finished, the first of them."""
    owner: dict[str, Kept] = {}
    lines: dict[str, dict[str, Any]] = {}
    for study in studies:
        for line in study.runs:
            name = line["key"] or line["folder"]  # a damaged run has no key
            if name not in lines or (line["status"] in FINISHED and lines[name]["status"] not in FINISHED):
                owner[name], lines[name] = study, line
    measured = ([line for study in studies for line in getattr(study, table) if owner[line["key"]] is study]
                for table in ("rows", "curves"))  # fmt: skip
    return Kept(studies[0].recipe, studies[0].scale, list(lines.values()), *measured)


def _said(study: Kept) -> str:
    return f"runs of {study.recipe} at scale {study.scale}" if study.recipe else "runs that are of no sweep"
