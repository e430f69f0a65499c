"""A figure made of parts, drawn from one table for paper (matplotlib) and for a page (Vega-Lite).

A part knows its table, its size in inches, how to draw itself and its Vega-Lite chart. A figure
stacks parts, with the title and the counts of runs above and the notes below, and is stamped
PARTIAL where runs are missing.
"""

import math
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import altair
import matplotlib as mpl
from matplotlib.axis import Axis
from matplotlib.figure import Figure as Canvas
from matplotlib.figure import SubFigure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from pandas import DataFrame, Series, concat

from mecheval.report.labels import INK
from mecheval.report.labels import task as task_name
from mecheval.report.study import Study
from mecheval.report.vega import CONFIG, Chart, Looks
from mecheval.tasks.chance import known_chance

GREY, WARNING = "#6b6b6b", "#b3261e"
STYLE = Path(__file__).with_name("figure.mplstyle")
MOST = 4  # damaged runs that a note names; a report lists all
LINE = 0.17  # inches of a line of a note
STAMP: dict[str, Any] = {"ha": "center", "va": "center", "weight": "bold", "color": WARNING}
STAMP |= {"rotation": 24, "alpha": 0.09, "zorder": 10}


@runtime_checkable
class Part(Protocol):
    """A part of a figure; `shows_seeds` says whether each seed is drawn as a dot."""

    shows_seeds: bool

    @property
    def title(self) -> str: ...

    @property
    def table(self) -> DataFrame: ...

    def size(self) -> tuple[float, float]: ...

    def draw(self, figure: SubFigure) -> None: ...

    def chart(self) -> Chart: ...


@dataclass(frozen=True)
class TablePart:
    """The fields of every built-in part, and the room for labels of its lines."""

    shows_seeds = True

    title: str
    table: DataFrame

    def label_width(self, column: str = "label") -> float:
        """Return the inches that the longest label takes."""
        return 0.2 + 0.085 * max(map(len, self.table[column]))


@dataclass(frozen=True)
class SeriesPart(TablePart):
    """A part with a look for each series, and labels of both axes."""

    looks: Looks
    x_label: str
    y_label: str


@dataclass(frozen=True)
class Figure:
    """A drawn study; `name` is what `mecheval figure` takes."""

    name: str
    title: str
    parts: Sequence[Part]
    notes: Sequence[str]
    counted: str
    partial: bool
    scale: str | None

    @classmethod
    def of(cls, study: Study, name: str, title: str, parts: Sequence[Part], *note: str) -> "Figure":
        every = [*note, *_sources(parts), *_left_out(study.damaged)]
        return cls(name, title, parts, every, study.counted, study.partial, study.scale)

    def table(self) -> DataFrame:
        """Return everything that is drawn as numbers."""
        if len(self.parts) == 1:
            return self.parts[0].table
        tables = [part.table.assign(part=part.title) for part in self.parts]
        return concat(tables, ignore_index=True)

    def picture(self) -> Canvas:
        with styled():
            sizes = [part.size() for part in self.parts]
            width = max(5.5, *(width for width, _ in sizes))
            columns = int(width * 16.5)
            notes = [line for note in self.notes for line in textwrap.wrap(note, columns)]
            titles = textwrap.wrap(self.title, int(width * 9))
            ratios = [0.34 + 0.2 * len(titles), *(height for _, height in sizes)]
            ratios.append(0.12 + LINE * len(notes))
            canvas = Canvas(figsize=(width, sum(ratios)))
            bands = canvas.subfigures(len(ratios), 1, height_ratios=ratios, squeeze=False, hspace=0)
            head, *middle, foot = bands[:, 0]
            self._head(head, ratios[0], width, titles)
            for part, band in zip(self.parts, middle, strict=True):
                part.draw(band)
            look: Any = {"va": "top", "fontsize": 7.5, "color": GREY, "linespacing": 1.35}
            foot.text(0.1 / width, 1, "\n".join(notes), **look)
            if self.partial:
                canvas.text(0.5, 0.5, "PARTIAL", fontsize=min(width, sum(ratios)) * 14, **STAMP)
            return canvas

    def spec(self) -> dict[str, Any]:
        """Return the Vega-Lite specification with its data."""
        charts = [part.chart() for part in self.parts]
        chart = charts[0]
        if len(charts) > 1:
            chart = altair.vconcat(*charts).resolve_scale(color="independent")
        # altair refuses 5,000 rows, which the curves of a thousand runs have
        with altair.data_transformers.enable("default", max_rows=None):
            spec = chart.to_dict()
        # JSON has no NaN, and altair passes on those of a column without a single number
        for rows in spec["datasets"].values():
            for row in rows:
                row |= {name: None for name, value in row.items() if _is_infinite(value)}
        return {**spec, "config": CONFIG}

    def _head(self, band: SubFigure, height: float, width: float, titles: Sequence[str]) -> None:
        left, top = 0.1 / width, 1 - 0.08 / height
        look: Any = {"va": "top", "fontsize": 11.5, "weight": "bold", "color": INK}
        band.text(left, top, "\n".join(titles), **look)
        scale = f"scale {self.scale} · " if self.scale else ""
        below = 1 - (0.13 + 0.2 * len(titles)) / height
        look = {"weight": "bold", "color": WARNING} if self.partial else {"color": GREY}
        stamp = "PARTIAL · " if self.partial else ""
        runs = f"{stamp}{scale}runs: {self.counted}"
        band.text(left, below, runs, va="top", fontsize=8.5, **look)


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
    """Lay out axes in rows and columns, with margins in inches, a title above and a label below."""
    width, height = (side / figure.get_dpi() for side in figure.bbox.size)
    top, bottom = 0.32 + (0.24 if title else 0), 0.3 + (0.22 if x_label else 0)
    across = (width - left - right - gap[0] * (columns - 1)) / columns
    down = (height - top - bottom - gap[1] * (rows - 1)) / rows
    place = {"left": left / width, "right": 1 - right / width}
    place |= {"top": 1 - top / height, "bottom": bottom / height}
    place |= {"wspace": gap[0] / across, "hspace": gap[1] / down, **other.pop("gridspec_kw", {})}
    middle = (left + width - right) / 2 / width
    look: Any = {"ha": "center", "va": "top", "fontsize": 9.5, "color": GREY}
    figure.text(middle, 1 - 0.06 / height, title, **look)
    figure.text(middle, 0.06 / height, x_label, ha="center", va="bottom", fontsize=9)
    return figure.subplots(rows, columns, squeeze=False, gridspec_kw=place, **other)


def legend(figure: SubFigure, handles: Sequence[Any], names: Sequence[str], right: float) -> None:
    """Draw a legend in the margin at the right of the axes."""
    width = figure.bbox.width / figure.get_dpi()
    place = (1 - (right - 0.08) / width, 0.5)
    figure.legend(handles, names, loc="center left", bbox_to_anchor=place)


def plain_log(axis: Axis) -> None:
    """Label a logarithmic axis with 0.2 and 50, not with powers of ten."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def styled() -> AbstractContextManager[None]:
    """Apply the style, to drawing and to saving alike: fonts are chosen when a figure is saved."""
    return mpl.rc_context(fname=STYLE)


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _left_out(damaged: Sequence[str]) -> list[str]:
    more = f"; and {len(damaged) - MOST} more" if len(damaged) > MOST else ""
    return [f"Left out: {'; '.join(damaged[:MOST])}{more}."] if damaged else []


def _sources(parts: Sequence[Part]) -> list[str]:
    """Say how many documents and seeds the numbers have, and why some have none of the paper's."""
    parts = [part for part in parts if {"n", "seeds", "why"} <= set(part.table.columns)]
    table = concat([part.table for part in parts]) if parts else DataFrame({"n": []})
    if not table["n"].notna().any():
        return []
    seeds = table["seeds"].dropna()
    several = bool(seeds.max() > 1)
    over = "Student's over seeds, cut to what is possible" if several else "over documents"
    over += ", or over documents where there is one seed" if seeds.min() < seeds.max() else ""
    sample = f"n = {_range(table['n'])} documents, {_range(seeds)} seed{'s' * several}"
    notes = [f"{sample} for each number; intervals are at 95 %, {over}."]
    if several and any(part.shows_seeds for part in parts):
        notes[0] += " Small dots: seeds."
    notes += _without_recall(table)
    reasons = list(dict.fromkeys(why for why in table["why"] if why))
    notes += [f"Not set beside the paper's numbers: {'; '.join(reasons)}."] if reasons else []
    if table["published"].notna().any():
        notes.append("Grey: the paper's number, and ours less it.")
    return notes


def _without_recall(table: DataFrame) -> list[str]:
    """Give the best accuracy without recall on each task of which accuracies are shown."""
    if not {"metric", "task"} <= set(table.columns):
        return []
    texts = []
    for task in dict.fromkeys(table["task"][table["metric"] == "accuracy"]):
        if levels := known_chance(task):
            texts.append(f"{levels.best:.1%} on {task_name(task)}")
    return [f"Best accuracy without recall: {', '.join(texts)}."] if texts else []


def _range(values: Series) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"
