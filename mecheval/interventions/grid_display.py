"""A grid as a short text, a small table, a frame and a heat map, for notebooks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mecheval.core.errors import InvalidInput
from mecheval.core.notebook import html_table, short
from mecheval.interventions.grid import Grid
from mecheval.metrics.measurement import Measurement

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

FRACTIONS = ("share", "likelihood", "accuracy", "counterfactual")  # shown in per cent


def grid_text(grid: Grid) -> str:
    """Return the size of a grid and what the corruption does, in one line."""
    sites, roles = _axes(grid)
    clean, corrupt = (end["likelihood"].mean() for end in (grid.clean, grid.corrupt))
    size = f"{len(sites)} sites × {len(roles)} roles, n={len(grid.clean['likelihood'])}"
    ends = f"likelihood {clean:.1%} clean, {corrupt:.1%} corrupt"
    return short(f"Grid({grid.corrupted} corrupted on {grid.split}: {size}; {ends})")


def grid_html(grid: Grid) -> str:
    """Return a table with a line for each condition and site and a column for each role."""
    metric, rows = _shown(grid, None)
    sites, roles = _axes(grid)
    by_cell = {(row.condition, row.site, row.role): row for row in rows}
    lines = []
    for condition in dict.fromkeys(cell[0] for cell in grid.cells):
        for site in sites:
            cells = [_cell(metric, by_cell.get((condition, site, role))) for role in roles]
            lines.append([condition, site, *cells])
    note = f"{metric}, mean [95 % interval over documents]"
    return html_table(grid_text(grid), ["condition", "site", *roles], lines, note)


def grid_frame(grid: Grid, metrics: Sequence[str] | None) -> "DataFrame":
    """Return the rows of a grid as a DataFrame."""
    from pandas import DataFrame

    return DataFrame([row.to_dict() for row in grid.rows(metrics=metrics)])


def grid_figure(grid: Grid, metric: str | None, condition: str | None) -> "Figure":
    """Draw the cells of one condition by site and role."""
    from mecheval.core.plots import Number, heat_map

    conditions = list(dict.fromkeys(cell[0] for cell in grid.cells))
    chosen = condition or conditions[0]
    if chosen not in conditions:
        problem = f"condition={chosen!r} must be one of {', '.join(conditions)}"
        raise InvalidInput(f"{problem}, which the grid has")
    metric, rows = _shown(grid, metric)
    cells = {}
    for row in rows:
        if row.condition == chosen and row.site and row.role:
            cells[row.site, row.role] = Number(row.value, row.low, row.high)
    sites, roles = _axes(grid)
    title = f"{metric}, {chosen} · {grid.corrupted} corrupted on {grid.split}"
    title += f" · n={len(grid.clean['likelihood'])}"
    limits = (0.0, 1.0)
    if metric not in FRACTIONS:
        values = [number.value for number in cells.values()] or [0.0]
        limits = (min(values), max(values))
    return heat_map(title, sites, roles, cells, lambda value: _text(metric, value), limits)


def _shown(grid: Grid, metric: str | None) -> tuple[str, list[Measurement]]:
    """Return the metric to show with its rows: the share if nothing is asked for and it exists."""
    if metric is not None:
        return metric, grid.rows(metrics=[metric])
    shares = grid.rows(metrics=["share"])
    return ("share", shares) if shares else ("likelihood", grid.rows(metrics=["likelihood"]))


def _axes(grid: Grid) -> tuple[list[str], list[str]]:
    sites = list(dict.fromkeys(site for _, site, _ in grid.cells))
    return sites, list(dict.fromkeys(role for _, _, role in grid.cells))


def _cell(metric: str, row: Measurement | None) -> str:
    if row is None or not row.n:
        return "–"
    low, high = _text(metric, row.low), _text(metric, row.high)
    return f"{_text(metric, row.value)}\n[{low}, {high}]"


def _text(metric: str, value: float) -> str:
    return f"{value:z.0%}" if metric in FRACTIONS else f"{value:z.2f}"
