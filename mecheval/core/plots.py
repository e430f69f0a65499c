"""Figures for a notebook, in plain matplotlib: one look for grids, curves and documents."""

import io
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import isnan

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "legend.frameon": False,
}
INK, FAINT, EMPTY = "#222222", "#6b6b6b", "#f1f1f1"
CELL_WIDTH, CELL_HEIGHT, LETTER = 0.86, 0.46, 0.075  # inches


class Picture(Figure):
    """A matplotlib figure that a notebook shows without pyplot."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=110, bbox_inches="tight")
        return file.getvalue()


@dataclass(frozen=True)
class Number:
    """A value with its 95 % interval, for a cell of a heat map."""

    value: float
    low: float
    high: float


def styled() -> AbstractContextManager[None]:
    """Apply the style inside the `with` block."""
    return mpl.rc_context(STYLE)  # type: ignore[arg-type]


def canvas(width: float, height: float) -> tuple[Picture, Axes]:
    """Return a white figure of a size in inches, with one pair of axes."""
    figure = Picture(figsize=(width, height), layout="constrained", facecolor="white")
    return figure, figure.add_subplot()


def heat_map(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: dict[tuple[str, str], Number],
    text: Callable[[float], str],
    limits: tuple[float, float] = (0.0, 1.0),
) -> Picture:
    """Draw a coloured cell for each row and column, with its value and interval in it."""
    with styled():
        width = 0.6 + max(map(len, rows)) * LETTER + len(columns) * CELL_WIDTH
        figure, axes = canvas(max(width, 4.0), 0.9 + len(rows) * CELL_HEIGHT)
        axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
        axes.set_title(title, fontsize=10, loc="left", color=INK)
        axes.set_xticks([i + 0.5 for i in range(len(columns))], columns)
        axes.set_yticks([i + 0.5 for i in range(len(rows))], rows)
        axes.grid(False)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        for y, row in enumerate(rows):
            for x, column in enumerate(columns):
                _draw_cell(axes, x, y, cells.get((row, column)), text, limits)
        return figure


def _draw_cell(
    axes: Axes,
    x: int,
    y: int,
    number: Number | None,
    text: Callable[[float], str],
    limits: tuple[float, float],
) -> None:
    middle = {"ha": "center", "va": "center"}
    if number is None or isnan(number.value):
        axes.add_patch(Rectangle((x, y), 1, 1, facecolor=EMPTY, edgecolor="white", linewidth=1.5))
        axes.text(x + 0.5, y + 0.5, "–", fontsize=8, color=FAINT, **middle)  # type: ignore[arg-type]
        return
    shade = float(Normalize(*limits, clip=True)(number.value))
    face = mpl.colormaps["YlGnBu"](shade)
    axes.add_patch(Rectangle((x, y), 1, 1, facecolor=face, edgecolor="white", linewidth=1.5))
    ink = "white" if shade > 0.5 else INK
    axes.text(x + 0.5, y + 0.36, text(number.value), fontsize=9, color=ink, **middle)  # type: ignore[arg-type]
    between = f"[{text(number.low)}, {text(number.high)}]"
    axes.text(x + 0.5, y + 0.72, between, fontsize=6, color=ink, **middle)  # type: ignore[arg-type]
