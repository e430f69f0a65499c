"""One HTML page with everything about a folder of runs, or about several folders.

It asks no network for anything: what it shows is in it. Pictures are there twice: still, for paper and where no script
may run, and live, with Vega-Lite and its numbers.
"""

import base64
import gzip
import os
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pandas import DataFrame

from mecheval.core.errors import InvalidInput
from mecheval.report import facts
from mecheval.report import labels as names
from mecheval.report.drawing import NothingToDraw, draw, figure_of
from mecheval.report.figure import Sheet, styled
from mecheval.report.study import Study
from mecheval.report.training_figures import emergence, training
from mecheval.report.verdict_figure import demo
from mecheval.report.verdicts import verdicts
from mecheval.results.archive import KEPT
from mecheval.sweeps.recipe import figure_order

TEMPLATES = Path(__file__).with_name("templates")
MOST = 8_000_000  # bytes of a table that is put into the page
LONG = 1000  # lines above which a table is compressed
TABLES = ("runs", "rows", "curves")


def page(*studies: Study, place: Path = Path()) -> str:
    """Of one study, or of several: those of the paper's figures in its order, then the others as they come.

    `place` is the folder that the page will be in. Everything that comes from files is escaped.
    """
    labelled = _labelled(sorted(studies, key=lambda study: figure_order(study.recipe)))
    scale = studies[0].scale if len({study.scale for study in studies}) == 1 else None
    name = _name(studies[0]) if len(studies) == 1 else f"{len(studies)} studies"
    return rendered(
        "report.html",
        title=_label(name, scale),
        name=name,
        scale=scale,
        counts=facts.counts(*studies),
        partial=any(study.partial for study in studies),
        chapters=_chapters(labelled, place),
        honesty=facts.honesty(*labelled.values()),
        provenance=facts.provenance(*labelled.values()),
    )


def figure_page(sheet: Sheet) -> str:
    """One figure alone, as live as in a report."""
    return rendered("figure.html", title=sheet.title, figure=shown(sheet))


def rendered(template: str, folder: Path = TEMPLATES, **values: Any) -> str:
    """A template of this or of another folder, with this one's style and scripts."""
    loader = FileSystemLoader([folder, TEMPLATES])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"percent": percent, "task": names.task}
    parts = {name: Markup((TEMPLATES / name).read_text(encoding="utf-8")) for name in ("report.css", "vega.js")}
    return environment.get_template(template).render(**values, style=parts["report.css"], vega=parts["vega.js"])


def percent(value: Any, digits: int = 1) -> str:
    return "–" if value is None or value != value else f"{round(100 * value, digits) + 0.0:.{digits}f} %"  # no −0


def _labelled(studies: Sequence[Study]) -> dict[str, Study]:
    """Refuses studies that a reader could not tell apart."""
    found: dict[str, Study] = {}
    for study in studies:
        label = _label(_name(study), study.scale)
        if label in found:
            both = f"DIR={str(found[label].folder)!r} and DIR={str(study.folder)!r}"
            raise InvalidInput(f"{both} are both {label!r}: a report has room for one of them")
        found[label] = study
    return found


def _label(name: str, scale: str | None) -> str:
    return f"{name} · {scale}" if scale else name


def _name(study: Study) -> str:
    return study.recipe or study.folder.resolve().name


def _chapters(labelled: Mapping[str, Study], place: Path) -> list[dict[str, Any]]:
    """What the template says of each study. `mark` ends its anchors: nothing for one alone, which says more."""
    alone = len(labelled) == 1
    found = []
    for number, (label, study) in enumerate(labelled.items(), 1):
        sheets = _sheets(study) if alone else [_figure(study)]
        verdict = verdicts(study)
        chapter = {
            "mark": "" if alone else f"-{number}",
            "label": label,
            "study": study,
            "figures": [shown(sheet) for sheet in sheets],
            "verdicts": verdict.to_dict("records"),
            "unfinished": facts.unfinished(study),
            "downloads": _short(sheets, verdict) + (_long(study) if alone else _long_or_kept(study, place)),
        }
        found.append(chapter)
    return found


def _sheets(study: Study) -> list[Sheet]:
    """The figure, then what there is to say about training."""
    found = [_figure(study)]
    if len(study.curves):
        found.append(training(study))
    if study.recipe != "emergence" and _on_the_way(study.rows):
        found.append(emergence(study))
    return found


def _figure(study: Study) -> Sheet:
    """That of the recipe, or the verdicts where it has none or nothing has come to what it shows."""
    name = figure_of(study.recipe)
    try:
        return draw(study, name) if name else demo(study)
    except NothingToDraw:
        return demo(study)


def _on_the_way(rows: DataFrame) -> bool:
    """Whether grids were made during training."""
    shares = rows[(rows["metric"] == "share") & (rows["split"] == "dev")]
    return bool(shares.groupby("key")["step"].nunique().gt(1).any())


def shown(sheet: Sheet) -> dict[str, Any]:
    """What a template draws: live and still."""
    return {"sheet": sheet, "spec": sheet.spec(), "still": still(sheet)}


def still(sheet: Sheet) -> str:
    """As a data URI; WebP without loss takes half of what PNG does."""
    stream = BytesIO()
    with styled():
        sheet.picture().savefig(stream, format="webp", dpi=130, pil_kwargs={"lossless": True})
    return _uri("image/webp", stream.getvalue())


def _short(sheets: Sequence[Sheet], verdict: DataFrame) -> list[dict[str, Any]]:
    """Tables that a browser can save."""
    tables = {sheet.name: sheet.table() for sheet in sheets} | {"verdicts": verdict}
    return [_download(name, table, compressed=len(table) > LONG) for name, table in tables.items()]


def _long(study: Study) -> list[dict[str, Any]]:
    return [_download(name, getattr(study, name), compressed=True) for name in TABLES]


def _long_or_kept(study: Study, place: Path) -> list[dict[str, Any]]:
    """Where they are, if they are kept: several studies would make a page of many megabytes."""
    if not (study.folder / KEPT).exists():
        return _long(study)
    files = {name: study.folder / f"{name}.parquet" for name in TABLES}
    return [
        {
            "path": Path(os.path.relpath(file.resolve(), place.resolve())).as_posix(),
            "lines": len(getattr(study, name)),
            "uri": None,
            "kilobytes": file.stat().st_size / 1000,
        }
        for name, file in files.items()
    ]


def _download(name: str, table: DataFrame, compressed: bool) -> dict[str, Any]:
    content, ending, kind = table.to_csv(index=False).encode(), "csv", "text/csv"
    if compressed:
        content, ending, kind = gzip.compress(content, mtime=0), "csv.gz", "application/gzip"
    uri = _uri(kind, content) if len(content) <= MOST else None
    size = {"lines": len(table), "kilobytes": len(content) / 1000}
    return {"name": f"{name}.{ending}", "uri": uri, "path": None, **size}


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
