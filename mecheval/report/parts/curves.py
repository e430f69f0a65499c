"""Curves over training, one per run: panels for architectures or widths, a row per quantity."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import altair
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy import ndarray
from pandas import DataFrame

from mecheval.report.figure import GREY, TablePart, legend, panes, plain_log
from mecheval.report.tables import ordered
from mecheval.report.vega import Chart, colour, titled

SHARE, LOG = "share", "log"  # kinds of axes
LEFT, RIGHT = 0.85, 1.35  # inches for labels and legend
MARKS = ("panel", "step", "text", "series")
DRAWN = ("panel", "series", "step", "value", "run")  # what a page needs of each point
FEW = 30  # points of a line up to which each is marked: a line may have only one


@dataclass(frozen=True)
class Curves(TablePart):
    """A table with panel, row, series, run, step and value.

    `rows` has the kind of each row's axis, `colours` the colour of each series. `marks` are moments
    (panel, step, text, series) that are drawn over all rows.
    """

    shows_seeds = False

    rows: Mapping[str, str]
    colours: Mapping[str, str]
    marks: DataFrame = field(default_factory=lambda: DataFrame(columns=list(MARKS)))

    def size(self) -> tuple[float, float]:
        panels = len(ordered(self.table["panel"]))
        across = panels * 1.6 if panels > 3 else 4.8
        return LEFT + RIGHT + across, 0.85 + 1.4 * len(self.rows)

    def draw(self, figure: SubFigure) -> None:
        panels = ordered(self.table["panel"])
        room: Any = {"left": LEFT, "right": RIGHT, "title": self.title, "x_label": "step"}
        axes = panes(figure, len(self.rows), len(panels), **room, sharex="col", sharey="row")
        for i, row in enumerate(self.rows):
            for j, panel in enumerate(panels):
                self._panel(axes[i, j], row, panel)
            axes[i, 0].set_ylabel(row)
        for axis, panel in zip(axes[0], panels, strict=True):
            axis.set_title(panel)
            texts = dict.fromkeys(self._marks(panel)["text"])
            # shares are near 0 or 1: there is room between them
            look: Any = {"ha": "right", "va": "center", "fontsize": 6.5, "color": GREY}
            axis.text(0.96, 0.5, "\n".join(texts), transform=axis.transAxes, **look)
        names = [name for name in self.colours if name in set(self.table["series"])]
        handles = [axes[0, 0].plot([], [], color=self.colours[name])[0] for name in names]
        legend(figure, handles, names, RIGHT)

    def chart(self) -> Chart:
        rows = [self._row(row) for row in self.rows]
        one = len(ordered(self.table["panel"])) == 1
        return titled(altair.hconcat(*rows) if one else altair.vconcat(*rows), self.title)

    def _row(self, row: str) -> Chart:
        panels = ordered(self.table["panel"])
        width = 130 if len(panels) > 3 else 250
        charts = []
        for panel in panels:  # layers of different tables cannot be put into facets
            single = self._single(row, panel, first=panel == panels[0])
            charts.append(single.properties(width=width, height=120, title=panel))
        return altair.hconcat(*charts).resolve_scale(y="shared")

    def _single(self, row: str, panel: str, first: bool) -> Chart:
        log = self.rows[row] == LOG
        labels: Any = {"labels": first, "ticks": first, "grid": not log, "tickCount": 4}
        labels |= {"minExtent": 34 if first else 0, "format": "~g" if log else ".0%"}
        ends = altair.Scale(domain=list(self._ends(row)), clamp=True)
        scale = altair.Scale(type="log") if log else ends
        steps = altair.Scale(domain=[0, int(self.table["step"].max())])
        title = row if first else None
        every_step = altair.Axis(grid=False, tickCount=4, format="~s")
        number = altair.Tooltip("value:Q", format=".3~g")
        lines = altair.Chart(self._here(row, panel)[list(DRAWN)])
        lines = lines.mark_line(strokeWidth=1.6, point={"size": 14} if self._few else False)
        lines = lines.encode(
            x=altair.X("step:Q", axis=every_step, scale=steps),
            y=altair.Y("value:Q", title=title, scale=scale, axis=altair.Axis(**labels)),
            color=colour(self.colours),
            detail="run:N",
            tooltip=["panel:N", "series:N", "step:Q", number, "run:N"],
        )
        marks = self._marks(panel)
        if not len(marks):
            return altair.layer(lines)
        rules = altair.Chart(marks).mark_rule(strokeDash=[3, 2], opacity=0.8)
        tips = ["text:N", "step:Q"]
        return lines + rules.encode(x="step:Q", color=colour(self.colours), tooltip=tips)

    @property
    def _few(self) -> bool:
        points = self.table.groupby(["panel", "row", "series", "run"]).size()
        return bool(points.max() <= FEW)

    def _here(self, row: str, panel: str) -> DataFrame:
        return self.table[(self.table["row"] == row) & (self.table["panel"] == panel)]

    def _marks(self, panel: str) -> DataFrame:
        """Return the panel's marks; runs that stopped at the same step share one."""
        return self.marks[self.marks["panel"] == panel].drop_duplicates(list(MARKS))

    def _ends(self, row: str) -> tuple[float, float]:
        """Return the ends of an axis of shares: beyond 0 and 100 % only where values are."""
        values = self.table.loc[self.table["row"] == row, "value"]
        return (-0.15 if values.min() < -0.01 else 0.0), (1.15 if values.max() > 1.01 else 1.0)

    def _panel(self, axis: Axes, row: str, panel: str) -> None:
        look: Any = {"linewidth": 1.3, "alpha": 0.9}
        look |= {"marker": ".", "markersize": 3.5} if self._few else {}
        for name, steps, values in _lines(self._here(row, panel)):
            axis.plot(steps, values, color=self.colours[name], **look)
        for mark in self._marks(panel).to_dict("records"):
            ink = self.colours.get(mark["series"], GREY)
            axis.axvline(mark["step"], color=ink, linestyle=":", linewidth=1)
        if self.rows[row] == LOG:
            axis.set_yscale("log")
            plain_log(axis.yaxis)
        else:
            low, high = self._ends(row)
            axis.set_ylim(low - 0.02, high + 0.04)
            axis.yaxis.set_major_formatter(PercentFormatter(1.0))
        axis.xaxis.set_major_locator(MaxNLocator(3, integer=True))


def _lines(table: DataFrame) -> Iterator[tuple[str, ndarray, ndarray]]:
    """Yield the curves of each series as one line with gaps: a line per run takes ms each."""
    for name, lines in table.groupby("series", sort=False):
        runs = lines.groupby("run", sort=False).ngroup().to_numpy()
        order = np.argsort(runs, kind="stable")
        breaks = np.flatnonzero(np.diff(runs[order])) + 1
        columns = [lines[column].to_numpy(dtype=float)[order] for column in ("step", "value")]
        steps, values = (np.insert(column, breaks, np.nan) for column in columns)
        yield str(name), steps, values
