"""One self-contained HTML page about a folder of runs, or about several folders.

Figures are in it twice: as pictures, for paper and where no script may run, and live as Vega-Lite.
"""

import base64
import gzip
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pandas import DataFrame

from mecheval.core.errors import InvalidInput
from mecheval.report import facts, labels
from mecheval.report.drawing import NothingToDraw, draw, figure_of
from mecheval.report.figure import Figure, styled
from mecheval.report.study import Study
from mecheval.report.training_figures import emergence, training
from mecheval.report.verdict_figure import demo
from mecheval.report.verdicts import verdicts
from mecheval.results.archive import KEPT
from mecheval.results.csv import to_csv
from mecheval.sweeps.recipe import figure_order

TEMPLATES = Path(__file__).with_name("templates")
MOST = 8_000_000  # bytes of a table that is put into the page
LONG = 1000  # lines above which a table is compressed
TABLES = ("runs", "rows", "curves")


def page(*studies: Study, place: Path = Path()) -> str:
    """Return the page about one study or several, those of numbered figures first, in order.

    `place` is the folder that the page will be in. Everything that comes from files is escaped.
    """
    labelled = _labelled(sorted(studies, key=lambda study: figure_order(study.recipe)))
    scale = studies[0].scale if len({study.scale for study in studies}) == 1 else None
    name = _name(studies[0]) if len(studies) == 1 else f"{len(studies)} studies"
    return render(
        "report.html",
        title=_label(name, scale),
        name=name,
        scale=scale,
        counts=facts.counts(*studies),
        damaged=[line for study in studies for line in study.damaged],
        partial=any(study.partial for study in studies),
        chapters=_chapters(labelled, place),
        honesty=facts.honesty(*labelled.values()),
        provenance=facts.provenance(*labelled.values()),
    )


def figure_page(figure: Figure) -> str:
    """Return a page with one figure alone, as live as in a report."""
    return render("figure.html", title=figure.title, figure=embed(figure))


def render(template: str, folder: Path = TEMPLATES, **values: Any) -> str:
    """Render a template of this or another folder, with this folder's style and scripts."""
    loader = FileSystemLoader([folder, TEMPLATES])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.filters |= FILTERS
    files = {"style": "report.css", "vega": "vega.js", "script": "page.js"}
    for name, file in files.items():
        values[name] = Markup((TEMPLATES / file).read_text(encoding="utf-8"))
    return environment.get_template(template).render(**values)


def percent(value: Any, digits: int = 1) -> str:
    if value is None or value != value:
        return "–"
    return f"{round(100 * value, digits) + 0.0:.{digits}f} %"  # + 0.0: no −0


FILTERS: Any = {"percent": percent, "task": labels.task, "seeds": labels.seed_count}
FILTERS |= {"capitalize_first": lambda text: text[:1].upper() + text[1:]}


def _labelled(studies: Sequence[Study]) -> dict[str, Study]:
    """Return studies by label; reject two with the same one."""
    labelled: dict[str, Study] = {}
    for study in studies:
        label = _label(_name(study), study.scale)
        if label in labelled:
            both = f"DIR={str(labelled[label].folder)!r} and DIR={str(study.folder)!r}"
            raise InvalidInput(f"{both} are both {label!r}: a report has room for one of them")
        labelled[label] = study
    return labelled


def _label(name: str, scale: str | None) -> str:
    return f"{name} · {scale}" if scale else name


def _name(study: Study) -> str:
    return study.recipe or study.folder.resolve().name


def _chapters(labelled: Mapping[str, Study], place: Path) -> list[dict[str, Any]]:
    """Return what the template needs of each study.

    `mark` ends its anchors and is empty for a study alone, whose chapter has more figures.
    """
    alone = len(labelled) == 1
    chapters = []
    for number, (label, study) in enumerate(labelled.items(), 1):
        figures = _figures(study) if alone else [_figure(study)]
        table = verdicts(study)
        tables = {figure.name: figure.table() for figure in figures} | {"verdicts": table}
        downloads = [_download(name, t, compressed=len(t) > LONG) for name, t in tables.items()]
        chapter = {
            "mark": "" if alone else f"-{number}",
            "label": label,
            "study": study,
            "figures": [embed(figure) for figure in figures],
            "verdicts": table.to_dict("records"),
            "unfinished": facts.unfinished(study),
            "downloads": downloads + _long_tables(study, place, alone),
        }
        chapters.append(chapter)
    return chapters


def _figures(study: Study) -> list[Figure]:
    """Draw the figure of a study and those about its training."""
    figures = [_figure(study)]
    drawn = [training] if len(study.curves) else []
    if study.recipe != "emergence" and _has_grids_of_training(study.rows):
        drawn.append(emergence)
    for figure in drawn:
        with suppress(NothingToDraw):
            figures.append(figure(study))
    return figures


def _figure(study: Study) -> Figure:
    """Draw the recipe's figure, or the verdicts where it has none or nothing to draw."""
    name = figure_of(study.recipe)
    try:
        return draw(study, name) if name else demo(study)
    except NothingToDraw:
        return demo(study)


def _has_grids_of_training(rows: DataFrame) -> bool:
    shares = rows[(rows["metric"] == "share") & (rows["split"] == "dev")]
    return bool(shares.groupby("key")["step"].nunique().gt(1).any())


def embed(figure: Figure) -> dict[str, Any]:
    """Return a figure for a template: itself, its live chart and its picture as a data URI."""
    stream = BytesIO()
    with styled():  # WebP without loss takes half as much as PNG
        picture = figure.picture()
        picture.savefig(stream, format="webp", dpi=130, pil_kwargs={"lossless": True})
    still = _uri("image/webp", stream.getvalue())
    return {"figure": figure, "spec": figure.spec(), "still": still}


def _long_tables(study: Study, place: Path, alone: bool) -> list[dict[str, Any]]:
    """Return downloads, or the paths of kept tables: several studies would make megabytes."""
    if alone or not (study.folder / KEPT).exists():
        return [_download(name, getattr(study, name), compressed=True) for name in TABLES]
    files = []
    for name in TABLES:
        file = study.folder / f"{name}.parquet"
        path = Path(os.path.relpath(file.resolve(), place.resolve())).as_posix()
        size = {"lines": len(getattr(study, name)), "kilobytes": file.stat().st_size / 1000}
        files.append({"path": path, "uri": None, **size})
    return files


def _download(name: str, table: DataFrame, compressed: bool) -> dict[str, Any]:
    content, ending, kind = to_csv(table).encode(errors="replace"), "csv", "text/csv"
    if compressed:
        # level 9 takes three times as long for 5 % fewer bytes
        content = gzip.compress(content, compresslevel=6, mtime=0)
        ending, kind = "csv.gz", "application/gzip"
    uri = _uri(kind, content) if len(content) <= MOST else None
    size = {"lines": len(table), "kilobytes": len(content) / 1000}
    return {"name": f"{name}.{ending}", "uri": uri, "path": None, **size}


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
