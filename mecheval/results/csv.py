"""Tables as CSV that a spreadsheet cannot take for formulas."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # what opens a formula in a spreadsheet


def to_csv(table: "DataFrame") -> str:
    """Return a table as CSV; text that would open a formula gets an apostrophe in front.

    Names of tasks and models may come from another person's folder. Numbers are untouched.
    """
    safe = table.copy()
    for place in range(len(table.columns)):
        if table.dtypes.iloc[place].kind not in "biufcmM":
            safe.isetitem(place, [_cell(value) for value in table.iloc[:, place]])
    safe.columns = [_cell(str(column)) for column in table.columns]
    return str(safe.to_csv(index=False))


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value
