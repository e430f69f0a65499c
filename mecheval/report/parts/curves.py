"""Curves over training: a column of panels for each architecture or width, each row a quantity of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import altair
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from pandas import DataFrame

from mecheval.report.figure import GREY, legend, panes, plain_log
from mecheval.report.tables import ordered
from mecheval.report.vega import Chart, colour, titled

SHARE, LOG = "share", "log"  # axes of a row

LEFT, RIGHT = 0.85, 1.35  # inches for labels and legend
FEW = 30  # points of a line that are shown one by one, since a line may have but one


@dataclass(frozen=True)
class Curves:
    """Columns of the table: panel, row, series, run, step, value. `rows` gives an axis, `colours` a colour to each.

    `marks` are moments: panel, step, text; they are drawn over all rows.
    """

    title: str
    table: DataFrame
    rows: Mapping[str, str]
    colours: Mapping[str, str]
    marks: DataFrame = field(default_factory=lambda: DataFrame(columns=["panel", "step", "text", "series"]))

    def size(self) -> tuple[float, float]:
        panels = len(ordered(self.table["panel"]))
        return LEFT + RIGHT + panels * (1.6 if panels > 3 else 4.8 / panels), 0.85 + 1.4 * len(self.rows)

    def draw(self, figure: SubFigure) -> None:
        panels = ordered(self.table["panel"])
        room: Any = {"left": LEFT, "right": RIGHT, "title": self.title, "x_label": "step"}
        axes = panes(figure, len(self.rows), len(panels), **room, sharex="col", sharey="row")
        for i, (row, kind) in enumerate(self.rows.items()):
            ends = self._ends(row) if kind == SHARE else None
            for j, panel in enumerate(panels):
                mine = self.table[(self.table["row"] == row) & (self.table["panel"] == panel)]
                self._panel(axes[i, j], mine, ends, self.marks[self.marks["panel"] == panel], label=i == 0)
                axes[i, j].set_title(panel) if i == 0 else None
            axes[i, 0].set_ylabel(row)
        shown = [name for name in self.colours if name in set(self.table["series"])]
        handles = [axes[0, 0].plot([], [], color=self.colours[name])[0] for name in shown]
        legend(figure, handles, shown, RIGHT)

    def chart(self) -> Chart:
        one = len(ordered(self.table["panel"])) == 1
        rows = [self._row(row, kind) for row, kind in self.rows.items()]
        return titled(altair.hconcat(*rows) if one else altair.vconcat(*rows), self.title)

    def _row(self, row: str, kind: str) -> Chart:
        panels = ordered(self.table["panel"])
        wide = 130 if len(panels) > 3 else 250
        # layers of different tables cannot be put into facets: a chart for each panel
        charts = [
            self._single(row, kind, panel, first=panel == panels[0]).properties(width=wide, height=120, title=panel)
            for panel in panels
        ]
        return altair.hconcat(*charts).resolve_scale(y="shared")

    def _single(self, row: str, kind: str, panel: str, first: bool) -> Chart:
        table = self.table[(self.table["row"] == row) & (self.table["panel"] == panel)]
        marks = self.marks[self.marks["panel"] == panel]
        labels: Any = {
            "labels": first,
            "ticks": first,
            "grid": kind == SHARE,
            "tickCount": 4,
            "minExtent": 34 if first else 0,
        }
        labels["format"] = "~g" if kind == LOG else ".0%"
        scale = altair.Scale(type="log") if kind == LOG else altair.Scale(domain=list(self._ends(row)), clamp=True)
        steps = altair.Scale(domain=[0, int(self.table["step"].max())])
        dots = {"size": 14} if self._few else False
        lines = altair.Chart(table).mark_line(strokeWidth=1.6, point=dots)
        lines = lines.encode(
            x=altair.X("step:Q", axis=altair.Axis(grid=False, tickCount=4, format="~s"), scale=steps),
            y=altair.Y("value:Q", title=row if first else None, scale=scale, axis=altair.Axis(**labels)),
            color=colour(self.colours),
            detail="run:N",
            tooltip=["panel:N", "series:N", "step:Q", altair.Tooltip("value:Q", format=".3~g"), "run:N"],
        )
        rule = altair.Chart(marks).mark_rule(strokeDash=[3, 2], opacity=0.8)
        rule = rule.encode(x="step:Q", color=colour(self.colours), tooltip=["text:N", "step:Q"])
        return altair.layer(lines, rule) if len(marks) else altair.layer(lines)

    @property
    def _few(self) -> bool:
        return bool(self.table.groupby(["panel", "row", "series", "run"]).size().max() <= FEW)

    def _ends(self, row: str) -> tuple[float, float]:
        """Of an axis of shares: beyond 0 and 100 % only where something is there."""
        values = self.table.loc[self.table["row"] == row, "value"]
        return (-0.15 if values.min() < -0.01 else 0.0), (1.15 if values.max() > 1.01 else 1.0)

    def _panel(
        self, axis: Axes, table: DataFrame, ends: tuple[float, float] | None, marks: DataFrame, label: bool
    ) -> None:
        for (series, _), line in table.groupby(["series", "run"], sort=False):
            dots: Any = {"marker": ".", "markersize": 3.5} if self._few else {}
            axis.plot(line["step"], line["value"], color=self.colours[series], linewidth=1.3, alpha=0.9, **dots)
        for mark in marks.to_dict("records"):
            axis.axvline(mark["step"], color=self.colours.get(mark["series"], GREY), linestyle=":", linewidth=1)
        if label and len(marks):
            text = "\n".join(dict.fromkeys(marks["text"]))
            # shares are near 0 or 1: there is room between them
            axis.text(0.96, 0.5, text, transform=axis.transAxes, ha="right", va="center", fontsize=6.5, color=GREY)
        if ends is None:
            axis.set_yscale("log")
            plain_log(axis.yaxis)
        else:
            low, high = ends
            axis.set_ylim(low - 0.02, high + 0.04)
            axis.yaxis.set_major_formatter(PercentFormatter(1.0))
        axis.xaxis.set_major_locator(MaxNLocator(3, integer=True))
