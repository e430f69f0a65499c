"""The card as a page that asks no network for anything, with the report's look, and as Markdown."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pandas import DataFrame

from mecheval.cards.facts import on_task, watched
from mecheval.report import labels as names
from mecheval.report.facts import provenance
from mecheval.report.figure import Figure
from mecheval.report.page import FILTERS, embed, render
from mecheval.report.parts.heat import Heat
from mecheval.report.study import Study
from mecheval.report.training_figures import emergence, training
from mecheval.report.verdict_figure import demo

TEMPLATES = Path(__file__).with_name("templates")
ROLES = ("key", "value", "next_key", "divider", "query")
WHERE = (
    "The key is corrupted, then the clean activation is put back at one site and one token; shown is the share of the "
    "lost likelihood that this restores, in the seed that dev likes most."
)
_ACTIVE = re.compile(r"([\\`*\[\]|])")


def html(study: Study, facts: Mapping[str, Any]) -> str:
    """Everything that comes from files is escaped."""
    sheets = {"verdict": demo(study), "where": _where(study, facts["cells"]), "emergence": _emergence(study)}
    sheets |= {f"training {task}": _training(study, task) for task in study.field("task")}
    figures = {name: embed(sheet) for name, sheet in sheets.items() if sheet}
    return render(
        "card.html",
        TEMPLATES,
        title=f"{facts['shown']} · mechanism card",
        card=facts,
        figures=figures,
        numbers={name: i for i, name in enumerate(figures, 1)},
        study=study,
        provenance=provenance(study),
        **_common(),
    )


def markdown(facts: Mapping[str, Any]) -> str:
    """Text and tables; every value is kept from acting as markup."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_quiet,
    )  # not autoescaped, which is for HTML: see `_quiet`
    environment.filters |= FILTERS
    return environment.get_template("card.md").render(card=facts, **_common())


def _common() -> dict[str, Any]:
    return {"roles": ROLES, "heat": _heat, "architecture": names.architecture}


def _quiet(value: Any) -> Any:
    """A value in Markdown: neither HTML nor a cell's end nor anything else but itself."""
    if not isinstance(value, str) or isinstance(value, Markup):  # a macro's, whose values were quieted one by one
        return value
    text = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _ACTIVE.sub(r"\\\1", re.sub(r"\s", " ", text))


def _heat(cells: Sequence[Mapping[str, Any]], task: str) -> list[dict[str, Any]]:
    """A line for each site: what is restored at each role."""
    found: dict[str, dict[str, Any]] = {}
    for cell in cells:
        if cell["task"] == task:
            found.setdefault(cell["site"], {"site": cell["site"]})[cell["role"]] = cell["value"]
    return list(found.values())


def _where(study: Study, cells: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Sites down, roles across, a panel for each task that is solved."""
    if not cells:
        return None
    table = DataFrame(cells).sort_values("role", key=lambda roles: roles.map(ROLES.index), kind="stable")
    order = {site: i for i, site in enumerate(dict.fromkeys(cell["site"] for cell in cells))}
    table = table.sort_values("site", key=lambda sites: sites.map(order), kind="stable").assign(
        panel=table["task"].map(names.task), y=table["site"], x=table["role"].str.replace("_", " "), state="measured"
    )
    heat = Heat("", table.assign(published=float("nan")), "token at which it is put back", "")
    return Figure.of(study, "where", "What each site gives back", [heat], WHERE)


def _emergence(study: Study) -> Figure | None:
    """Of the task on which training was watched; nothing where no run of it was finished."""
    part = watched(study)
    return emergence(part) if len(part.curves) else None


def _training(study: Study, task: str) -> Figure | None:
    part = on_task(study, task)
    if not len(part.curves):
        return None
    return replace(training(part), title=f"Training on {names.task(task)}, at the chosen rates")
