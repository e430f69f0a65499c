"""Tables as CSV that a spreadsheet cannot take for formulas."""

import csv
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy import ndarray
    from pandas import DataFrame, Series

FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # what opens a formula in a spreadsheet


def to_csv(table: "DataFrame") -> str:
    """Return a table as CSV; text that would open a formula gets an apostrophe in front.

    Names of tasks and models may come from another person's folder. Numbers are untouched.
    """
    columns = [_cells(table.iloc[:, place]) for place in range(len(table.columns))]
    if len(columns) == 1:  # a line without a character would be no row
        columns = [[cell or '""' for cell in columns[0]]]
    names = _quoted([_safe(str(name)) for name in table.columns])
    return "\n".join([names, *map(",".join, zip(*columns, strict=True)), ""])


def _cells(column: "Series") -> list[str]:
    """Return the cells of a column as pandas prints them; equal ones are printed once."""
    import numpy as np

    values, places = _different(column)
    if column.dtype.kind not in "biufcmM":
        values = values.map(_safe).astype(object)
    text = values.to_frame("value").assign(end="").to_csv(index=False, header=False)
    cells = text.split(",\n")[:-1]
    if '"' in text:  # a quoted cell may have such an end of its own
        cells = [_quoted([cell]) for cell, _ in csv.reader(StringIO(text, newline=""))]
    return cells if places is None else np.array(cells, dtype=object)[places].tolist()


def _different(column: "Series") -> "tuple[Series, ndarray | None]":
    """Return the different values of a column and the place of each cell among them."""
    import numpy as np
    from pandas import Series, factorize

    if column.dtype == object:  # there 1 and True are equal
        return column, None
    if not (isinstance(column.dtype, np.dtype) and column.dtype.kind == "f"):
        places, values = factorize(column.array, use_na_sentinel=False)
        return Series(values), places
    # bit by bit, since 0 and −0 are equal
    places, bits = factorize(column.to_numpy().view(f"i{column.dtype.itemsize}"))
    return Series(bits.view(column.dtype)), places


def _quoted(cells: Sequence[str]) -> str:
    """Return cells as one line, in quotes where they need them."""
    line = StringIO()
    csv.writer(line, lineterminator="\n").writerow([*cells, ""])
    return line.getvalue().removesuffix(",\n")


def _safe(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value
