"""Tables as CSV that a spreadsheet cannot take for formulas."""

import csv
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy import ndarray
    from pandas import DataFrame, Series

FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # what opens a formula in a spreadsheet
NUMBERS = "biufcmM"  # kinds of columns that are numbers, times or true and false


def to_csv(table: "DataFrame") -> str:
    """Return a table as CSV; text that would open a formula gets an apostrophe in front.

    Names of tasks and models may come from another person's folder. Numbers are untouched.
    """
    if table.columns.empty:
        return "\n"
    columns = [_cells(table.iloc[:, place]) for place in range(len(table.columns))]
    if len(columns) == 1:  # a line without a character would be no row
        columns = [[cell or '""' for cell in columns[0]]]
    names = _quoted([_safe(str(name)) for name in table.columns])
    return "\n".join([names, *map(",".join, zip(*columns, strict=True)), ""])


def _cells(column: "Series") -> list[str]:
    """Return the cells of a column as pandas prints them; equal ones are printed once."""
    import numpy as np
    from pandas import Series

    if column.dtype == object:
        column = Series([_safe(value) for value in column])  # numbers get one type
    values, places = _different(column)
    if column.dtype.kind in NUMBERS:
        text = values.to_frame("value").assign(end="").to_csv(index=False, header=False)
        cells = text.split(",\n")[:-1]
    else:
        pairs = zip(values, values.isna(), strict=True)
        cells = ["" if missing else _quoted([_safe(value)]) for value, missing in pairs]
    return cells if places is None else np.array(cells, dtype=object)[places].tolist()


def _different(column: "Series") -> "tuple[Series, ndarray | None]":
    """Return the different values of a column and the place of each cell among them."""
    import numpy as np
    from pandas import Series, factorize

    if column.dtype.kind == "f" and isinstance(column.dtype, np.dtype):
        # bit by bit, since 0 and −0 are equal
        places, bits = factorize(column.to_numpy().view(f"i{column.dtype.itemsize}"))
        return Series(bits.view(column.dtype)), places
    if column.dtype == object or column.dtype.kind == "f":  # there 1 and True are equal
        return column, None
    places, values = factorize(column.array, use_na_sentinel=False)
    return Series(values), places


def _quoted(cells: Sequence[Any]) -> str:
    """Return cells as one line, in quotes where they need them."""
    line = StringIO()
    csv.writer(line, lineterminator="\n").writerow([*cells, ""])
    return line.getvalue().removesuffix(",\n")


def _safe(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value
