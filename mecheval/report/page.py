"""One HTML page with everything about a folder of runs. It asks no network for anything: what it shows is in it.

Pictures are there twice: still, for paper and where no script may run, and live, with Vega-Lite and its numbers.
"""

import base64
import gzip
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pandas import DataFrame

from mecheval.report import facts, names
from mecheval.report.figures import all_figures
from mecheval.report.figures.beyond import emergence, training
from mecheval.report.figures.drawing import draw, figure_of
from mecheval.report.figures.verdict import demo
from mecheval.report.sheet import Sheet, styled
from mecheval.report.study import Study
from mecheval.report.verdicts import verdicts

TEMPLATES = Path(__file__).with_name("templates")
MOST = 8_000_000  # bytes of a table that is put into the page


def page(study: Study) -> str:
    """Everything that comes from files is escaped."""
    sheets, verdict = _sheets(study), verdicts(study)
    name = study.recipe or study.folder.resolve().name
    return rendered(
        "report.html",
        title=f"{name} · {study.scale}" if study.scale else name,
        name=name,
        study=study,
        figures=[shown(sheet) for sheet in sheets],
        verdicts=verdict.to_dict("records"),
        honesty=facts.honesty(study),
        provenance=facts.provenance(study),
        unfinished=facts.unfinished(study),
        downloads=_downloads(study, sheets, verdict),
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


def _sheets(study: Study) -> list[Sheet]:
    """The figure of the recipe, or the verdicts; then what there is to say about training."""
    all_figures()
    name = figure_of(study.recipe)
    found = [draw(study, name) if name else demo(study)]
    if len(study.curves):
        found.append(training(study))
    if name != "emergence" and _on_the_way(study.rows):
        found.append(emergence(study))
    return found


def _on_the_way(rows: DataFrame) -> bool:
    """Whether grids were made during training."""
    shares = rows[(rows["metric"] == "share") & (rows["split"] == "dev")]
    return bool(shares.groupby("key")["step"].nunique().gt(1).any())


def shown(sheet: Sheet) -> dict[str, Any]:
    """What a template draws: live and still."""
    return {"sheet": sheet, "spec": sheet.spec(), "still": still(sheet)}


def still(sheet: Sheet) -> str:
    """As a data URI."""
    stream = BytesIO()
    with styled():
        sheet.picture().savefig(stream, format="png", dpi=130, metadata={"Software": None})
    return _uri("image/png", stream.getvalue())


def _downloads(study: Study, sheets: list[Sheet], verdict: DataFrame) -> list[dict[str, Any]]:
    """Tables that a browser can save; the long ones compressed."""
    found = [_download(f"{_file_name(sheet)}.csv", sheet.table()) for sheet in sheets]
    found.append(_download("verdicts.csv", verdict))
    tables: Mapping[str, DataFrame] = {"runs": study.runs, "rows": study.rows, "curves": study.curves}
    return found + [_download(f"{name}.csv.gz", table) for name, table in tables.items()]


def _file_name(sheet: Sheet) -> str:
    return f"figure{sheet.name}" if sheet.name[0].isdigit() else sheet.name


def _download(name: str, table: DataFrame) -> dict[str, Any]:
    content = table.to_csv(index=False).encode()
    if name.endswith(".gz"):
        content = gzip.compress(content, mtime=0)
    uri = _uri("application/gzip" if name.endswith(".gz") else "text/csv", content) if len(content) <= MOST else None
    return {"name": name, "lines": len(table), "uri": uri, "kilobytes": len(content) / 1000}


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
