"""The card as a self-contained page in the style of the report, and as Markdown."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pandas import DataFrame

from mecheval.cards.facts import on_task, watched
from mecheval.report import labels
from mecheval.report.facts import provenance
from mecheval.report.figure import Figure
from mecheval.report.page import FILTERS, embed, render
from mecheval.report.parts.heat import Heat
from mecheval.report.study import Study
from mecheval.report.training_figures import emergence, training
from mecheval.report.verdict_figure import demo

TEMPLATES = Path(__file__).with_name("templates")
ROLES = ("key", "value", "next_key", "divider", "query")
HEAT_NOTE = (
    "The key is corrupted, then the clean activation is restored at one site and one token. "
    "Colours show the share of the lost likelihood that comes back, in the seed with the best dev "
    "accuracy."
)
_MARKUP = re.compile(r"([\\`*\[\]|])")


def html(study: Study, facts: Mapping[str, Any]) -> str:
    """Return the page; everything that comes from files is escaped."""
    subject = facts["architecture"]
    sheets = {"verdict": demo(study, subject), "where": _heat_map(study, facts["cells"])}
    part = watched(study)
    sheets["emergence"] = emergence(part, subject) if len(part.curves) else None
    sheets |= {f"training {task}": _training(study, task, subject) for task in study.field("task")}
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
        roles=ROLES,
        architecture=labels.architecture,
    )


def markdown(facts: Mapping[str, Any]) -> str:
    """Return text and tables; no value can act as markup."""
    environment = Environment(  # `_escape` does for Markdown what autoescape does for HTML
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_escape,
    )
    environment.filters |= FILTERS
    template = environment.get_template("card.md")
    heat = {task: _heat_rows(facts["cells"], task) for task in facts["where"]}
    return template.render(card=facts, roles=ROLES, heat=heat, architecture=labels.architecture)


def _escape(value: Any) -> Any:
    """Escape a string so that Markdown shows it and takes none of it for HTML or markup."""
    if not isinstance(value, str) or isinstance(value, Markup):  # a macro escaped its own values
        return value
    text = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKUP.sub(r"\\\1", re.sub(r"\s", " ", text))


def _heat_rows(cells: Sequence[Mapping[str, Any]], task: str) -> list[dict[str, Any]]:
    """Return a row for each site with the restored share at each role."""
    rows: dict[str, dict[str, Any]] = {}
    for cell in cells:
        if cell["task"] == task:
            rows.setdefault(cell["site"], {"site": cell["site"]})[cell["role"]] = cell["value"]
    return list(rows.values())


def _heat_map(study: Study, cells: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Draw sites by roles, with a panel for each solved task."""
    if not cells:
        return None
    sites = list(dict.fromkeys(cell["site"] for cell in cells))
    ordered = sorted(cells, key=lambda cell: (sites.index(cell["site"]), ROLES.index(cell["role"])))
    table = DataFrame(ordered)
    table = table.assign(
        panel=table["task"].map(labels.task),
        y=table["site"].str.replace(r"^blocks\.(\d+)\.(mixer\.)?", r"layer \1: ", regex=True),
        x=table["role"].str.replace("_", " "),
        state="measured",
        published=float("nan"),
    )
    heat = Heat("", table, "token at which it is restored", "")
    return Figure.of(study, "where", "What each site restores", [heat], HEAT_NOTE)


def _training(study: Study, task: str, subject: str) -> Figure | None:
    part = on_task(study, task)
    if not len(part.curves):
        return None
    return replace(
        training(part, subject), title=f"Training on {labels.task(task)}, at the chosen rates"
    )
