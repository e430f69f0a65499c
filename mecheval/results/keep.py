"""From folders of runs to what is kept of them."""

from pathlib import Path
from typing import Any

from mecheval.errors import InvalidInput
from mecheval.results.kept import FACTS, KEPT, Kept
from mecheval.results.plan import Plan
from mecheval.results.store import Results
from mecheval.spec import canonical_json


def keep(folder: Path, out: Path) -> Kept:
    """Writes the tables of a folder's runs into another, in place of those that may be there."""
    if out.exists() and not (out / KEPT).exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise InvalidInput(f"out={str(out)!r} must be a new folder, or one with a kept study")
    results = Results(folder)
    plan = Plan.read(folder)
    states = plan.states(results) if plan else results.runs()
    if not results.runs():
        raise InvalidInput(f"DIR={str(folder)!r} has no runs")
    facts = results.facts()
    kept = Kept(
        plan.recipe if plan else None,
        plan.scale if plan else None,
        [_line(state, facts.get(state["key"], {})) for state in states],
        *(results.measured(name) for name in ("rows", "curve")),
    )
    kept.write(out)
    return kept


def _line(state: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """The folder by its name alone, the facts as JSON."""
    texts = {name: canonical_json(facts[name]) if facts.get(name) else None for name in FACTS}
    return {**state, "folder": Path(state["folder"]).name, **texts}
