"""Figures and pages as files: pictures, tables, Vega-Lite specifications and HTML."""

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from pandas import DataFrame

from mecheval.core.errors import InvalidInput
from mecheval.report.figure import Figure, styled
from mecheval.report.page import figure_page, page
from mecheval.report.study import Study
from mecheval.report.tables import json_value
from mecheval.results.csv import to_csv
from mecheval.runs.files import write

_NO_DATE = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the path's ending; equal figures give equal bytes."""
    write(path, _WAYS[check_ending(path)](figure))


def check_ending(path: Path) -> str:
    """Return the ending of a path; refuse one that no format has."""
    ending = path.suffix.removeprefix(".").lower()
    if ending not in _WAYS:
        raise InvalidInput(f"out={str(path)!r} must end in .{', .'.join(_WAYS)}")
    return ending


def default_files(figure: Figure) -> list[Path]:
    """Return `demo-quick.png` and `demo-quick.pdf` in the current folder, for the figure `demo`."""
    return [Path(f"{figure.name}-{figure.scale}.{ending}") for ending in ("png", "pdf")]


def write_page(study: Study, path: Path, *others: Study) -> Path:
    """Write the page about one study, or about it and others."""
    write(path, _encoded(page(study, *others, place=path.parent)))
    return path


def records(table: DataFrame) -> list[dict[str, Any]]:
    """Return the lines of a table as JSON has them, with None for values that are not finite."""
    lines = table.to_dict("records")
    return [{name: json_value(value) for name, value in line.items()} for line in lines]


def _picture(ending: str) -> Callable[[Figure], bytes]:
    def content(figure: Figure) -> bytes:
        stream = BytesIO()
        with styled():
            figure.picture().savefig(stream, format=ending, metadata=_NO_DATE[ending])
        return stream.getvalue()

    return content


_WAYS: dict[str, Callable[[Figure], bytes]] = {
    **{ending: _picture(ending) for ending in ("png", "pdf", "svg")},
    "json": lambda figure: _encoded(json.dumps(figure.spec(), ensure_ascii=False, allow_nan=False)),
    "csv": lambda figure: _encoded(to_csv(figure.table())),
    "html": lambda figure: _encoded(figure_page(figure)),
}


def _encoded(text: str) -> bytes:
    """Return text as UTF-8; bytes of a folder's name that are none become question marks."""
    return text.encode(errors="replace")
