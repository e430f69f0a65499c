"""A figure as a sheet of parts, drawn once for paper (matplotlib) and once for a page (Vega-Lite), from one table.

A part knows its table, its size in inches, how to draw itself and its Vega-Lite chart. A sheet puts parts below one
another, with the title and the counts of runs above and the notes below, and says PARTIAL where runs are missing.
"""

import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import altair
import matplotlib as mpl
from matplotlib.axis import Axis
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from pandas import DataFrame, concat

from mecheval.report.labels import INK
from mecheval.report.study import Study
from mecheval.report.vega import CONFIG, Chart

GREY, WARNING = "#6b6b6b", "#b3261e"
STYLE = Path(__file__).with_name("figure.mplstyle")
LINE = 0.17  # inches of a line of a note


@runtime_checkable
class Part(Protocol):
    @property
    def title(self) -> str: ...

    @property
    def table(self) -> DataFrame: ...

    def size(self) -> tuple[float, float]: ...

    def draw(self, figure: SubFigure) -> None: ...

    def chart(self) -> Chart: ...


@dataclass(frozen=True)
class Sheet:
    """`name` is the figure's, as in `mecheval figure 3`."""

    name: str
    title: str
    parts: Sequence[Part]
    notes: Sequence[str]
    counted: str
    partial: bool
    scale: str | None

    @classmethod
    def of(cls, study: Study, name: str, title: str, parts: Sequence[Part], *notes: str) -> "Sheet":
        return cls(name, title, parts, [*notes, *_sources(parts)], study.counted, study.partial, study.scale)

    def table(self) -> DataFrame:
        """Everything that is drawn, as numbers."""
        several = len(self.parts) > 1
        return concat([p.table.assign(part=p.title) if several else p.table for p in self.parts], ignore_index=True)

    def picture(self) -> Figure:
        with styled():
            sizes = [part.size() for part in self.parts]
            width = max(5.5, *(width for width, _ in sizes))
            notes = [line for note in self.notes for line in textwrap.wrap(note, int(width * 16.5))]
            titles = textwrap.wrap(self.title, int(width * 9))
            head, foot = 0.34 + 0.2 * len(titles), 0.12 + LINE * len(notes)
            height = head + foot + sum(height for _, height in sizes)
            figure = Figure(figsize=(width, height))
            ratios = [head, *(height for _, height in sizes), foot]
            bands = figure.subfigures(len(ratios), 1, height_ratios=ratios, squeeze=False, hspace=0)[:, 0]
            self._head(bands[0], head, width, titles)
            for part, band in zip(self.parts, bands[1:-1], strict=True):
                part.draw(band)
            bands[-1].text(0.1 / width, 1, "\n".join(notes), va="top", fontsize=7.5, color=GREY, linespacing=1.35)
            if self.partial:
                figure.text(0.5, 0.5, "PARTIAL", rotation=24, ha="center", va="center", color=WARNING, alpha=0.09,
                            fontsize=min(width, height) * 14, weight="bold", zorder=10)  # fmt: skip
            return figure

    def spec(self) -> dict[str, Any]:
        """Of Vega-Lite, with its data."""
        charts = [part.chart() for part in self.parts]
        chart = charts[0] if len(charts) == 1 else altair.vconcat(*charts).resolve_scale(color="independent")
        spec = chart.to_dict()
        # JSON has no NaN, and altair passes on those of a column without a single number
        datasets = {name: [_without_nan(row) for row in rows] for name, rows in spec["datasets"].items()}
        return {**spec, "datasets": datasets, "config": CONFIG}

    def _head(self, band: SubFigure, height: float, width: float, titles: Sequence[str]) -> None:
        left = 0.1 / width
        band.text(left, 1 - 0.08 / height, "\n".join(titles), va="top", fontsize=11.5, weight="bold", color=INK)
        scale = f"scale {self.scale} · " if self.scale else ""
        below = 1 - (0.13 + 0.2 * len(titles)) / height
        if self.partial:
            said = f"PARTIAL · {scale}runs: {self.counted}"
            band.text(left, below, said, va="top", fontsize=8.5, weight="bold", color=WARNING)
        else:
            band.text(left, below, f"{scale}runs: {self.counted}", va="top", fontsize=8.5, color=GREY)


def _without_nan(row: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(value, float) and value != value else value for name, value in row.items()}


def panes(
    figure: SubFigure,
    rows: int,
    columns: int,
    *,
    left: float,
    right: float = 0.15,
    gap: tuple[float, float] = (0.14, 0.2),
    title: str = "",
    x_label: str = "",
    **other: Any,
) -> Any:
    """Axes in rows and columns with room in inches around them, a title above all and a label below all."""
    width, height = (side / figure.get_dpi() for side in figure.bbox.size)
    top, bottom = 0.32 + (0.24 if title else 0), 0.3 + (0.22 if x_label else 0)
    across = (width - left - right - gap[0] * (columns - 1)) / columns
    down = (height - top - bottom - gap[1] * (rows - 1)) / rows
    place = {"left": left / width, "right": 1 - right / width, "top": 1 - top / height, "bottom": bottom / height}
    place |= {"wspace": gap[0] / across, "hspace": gap[1] / down, **other.pop("gridspec_kw", {})}
    middle = (left + width - right) / 2 / width
    figure.text(middle, 1 - 0.06 / height, title, ha="center", va="top", fontsize=9.5, color=GREY)
    figure.text(middle, 0.06 / height, x_label, ha="center", va="bottom", fontsize=9)
    return figure.subplots(rows, columns, squeeze=False, gridspec_kw=place, **other)


def legend(figure: SubFigure, handles: Sequence[Any], names: Sequence[str], right: float) -> None:
    """Beside the axes, in the room that was left at the right."""
    width = figure.bbox.width / figure.get_dpi()
    figure.legend(handles, names, loc="center left", bbox_to_anchor=(1 - (right - 0.08) / width, 0.5))


def plain_log(axis: Axis) -> None:
    """0.2 and 50, not powers of ten."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def styled() -> AbstractContextManager[None]:
    """Of drawing and of saving alike: fonts are chosen when a figure is saved."""
    return mpl.rc_context(fname=STYLE)


def _sources(parts: Sequence[Part]) -> list[str]:
    """What holds for all numbers: how many documents and seeds, and why some are not set beside the paper's."""
    tables = [part.table for part in parts if {"n", "seeds", "why"} <= set(part.table.columns)]
    if not tables:
        return []
    table = concat(tables)
    n, seeds = table["n"].dropna(), table["seeds"].dropna()
    if not len(n):
        return []
    said = [f"n = {_range(n)} documents, {_range(seeds)} seed{'s' if seeds.max() > 1 else ''} for each number; "
            "± and bars: 95 % intervals."]  # fmt: skip
    reasons = list(dict.fromkeys(why for why in table["why"] if why))
    said += [f"Not set beside the paper's numbers: {'; '.join(reasons)}."] if reasons else []
    said += ["Grey: the paper's number, and ours less it."] if table["published"].notna().any() else []
    return said


def _range(values: Any) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"
