"""Clouds of checkpoints: one number against another, or boxes over layers."""

from dataclasses import dataclass
from typing import Any

import altair
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from pandas import DataFrame

from mecheval.report.figure import legend, panes
from mecheval.report.tables import ordered
from mecheval.report.vega import Chart, Looks, panels, series, shape, shares, titled

LEFT, RIGHT = 0.85, 1.35  # inches for labels and legend


@dataclass(frozen=True)
class Points:
    """Columns of the table: panel, series, x, y (fractions), chosen (drawn large). `most` is the end of both axes."""

    title: str
    table: DataFrame
    looks: Looks
    x_label: str
    y_label: str
    ends: tuple[float, float] = (0.0, 1.0)

    def size(self) -> tuple[float, float]:
        return LEFT + RIGHT + 2.5 * len(ordered(self.table["panel"])), 3.2 + (0.24 if self.title else 0)

    def draw(self, figure: SubFigure) -> None:
        panels = ordered(self.table["panel"])
        room: Any = {"left": LEFT, "right": self._right(figure), "title": self.title, "x_label": self.x_label}
        axes = panes(figure, 1, len(panels), **room, gap=(0.25, 0.0), sharex=True, sharey=True)[0]
        room = 0.03 * (self.ends[1] - self.ends[0])
        limits = (self.ends[0] - room, self.ends[1] + room)
        for axis, panel in zip(axes, panels, strict=True):
            axis.plot(self.ends, self.ends, "-", color="#bbbbbb", linewidth=0.8, zorder=1)
            for name, (colour, marker) in self.looks.items():
                mine = self.table[(self.table["panel"] == panel) & (self.table["series"] == name)]
                for best, size, alpha in ((False, 14, 0.45), (True, 46, 1.0)):
                    found = mine[mine["chosen"] == best]
                    label = name if best else None
                    axis.scatter(found["x"], found["y"], s=size, marker=marker, color=colour, alpha=alpha, label=label,
                                 linewidths=0.5, edgecolors="white", zorder=3)  # fmt: skip
            axis.set(title=panel, xlim=limits, ylim=limits, aspect="equal")
            axis.xaxis.set_major_locator(MaxNLocator(4))
            axis.xaxis.set_major_formatter(PercentFormatter(1.0))
            axis.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes[0].set_ylabel(self.y_label)
        handles, names = axes[0].get_legend_handles_labels()
        legend(figure, handles, names, self._right(figure))

    def _right(self, figure: SubFigure) -> float:
        """More where other parts of the sheet are wider: the panels stay square."""
        width = figure.bbox.width / figure.get_dpi()
        return max(RIGHT, width - LEFT - 2.7 * len(ordered(self.table["panel"])))

    def chart(self) -> Chart:
        numbers = [
            altair.Tooltip(f"{n}:Q", title=t, format=".1%") for n, t in (("x", self.x_label), ("y", self.y_label))
        ]
        points = altair.Chart(self.table).mark_point(filled=True, clip=True)
        points = points.encode(
            x=altair.X("x:Q", title=self.x_label, **shares(self.ends)),
            y=altair.Y("y:Q", title=self.y_label, **shares(self.ends)),
            color=series(self.looks),
            shape=shape(self.looks),
            size=altair.condition("datum.chosen", altair.value(80), altair.value(22)),
            opacity=altair.condition("datum.chosen", altair.value(1), altair.value(0.45)),
            tooltip=["series:N", "width:Q", "rate:Q", *numbers],
        )
        return titled(points.properties(width=220, height=220).facet(column=panels(self.table)), self.title)


@dataclass(frozen=True)
class Boxes:
    """Columns of the table: panel, series, x (a layer), value (a fraction): a box for each series and x."""

    title: str
    table: DataFrame
    looks: Looks
    x_label: str
    y_label: str

    def size(self) -> tuple[float, float]:
        return LEFT + RIGHT + sum(0.4 + 0.95 * n for n in self._layers().values()), 2.9 + (0.24 if self.title else 0)

    def draw(self, figure: SubFigure) -> None:
        layers = self._layers()
        room: Any = {"left": LEFT, "right": RIGHT, "title": self.title, "x_label": self.x_label}
        grid = {"width_ratios": list(layers.values())}
        axes = panes(figure, 1, len(layers), **room, sharey=True, gridspec_kw=grid)[0]
        for axis, (panel, depth) in zip(axes, layers.items(), strict=True):
            self._panel(axis, self.table[self.table["panel"] == panel])
            axis.set(title=panel, ylim=(-0.2, 1.2), xlim=(-0.5, depth - 0.5))
            axis.set_xticks(range(depth), [str(layer) for layer in range(depth)])
            axis.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes[0].set_ylabel(self.y_label)
        handles = [axes[0].plot([], [], marker="s", linestyle="", color=colour)[0] for colour, _ in self.looks.values()]
        legend(figure, handles, list(self.looks), RIGHT)

    def chart(self) -> Chart:
        boxes = altair.Chart(self.table).mark_boxplot(extent="min-max", size=9, opacity=0.75)
        boxes = boxes.encode(
            x=altair.X("x:O", title=self.x_label, axis=altair.Axis(labelAngle=0)),
            xOffset=altair.XOffset("series:N", sort=list(self.looks)),
            y=altair.Y("value:Q", title=self.y_label, **shares((-0.2, 1.2))),
            color=series(self.looks),
        )
        sized = boxes.properties(width=altair.Step(13), height=190)
        return titled(sized.facet(column=panels(self.table)).resolve_scale(x="independent"), self.title)

    def _layers(self) -> dict[str, int]:
        """How many layers a panel has."""
        return {p: int(self.table.loc[self.table["panel"] == p, "x"].max()) + 1 for p in ordered(self.table["panel"])}

    def _panel(self, axis: Axes, table: DataFrame) -> None:
        step = 0.84 / max(len(self.looks), 1)
        for i, (name, (colour, marker)) in enumerate(self.looks.items()):
            for layer in sorted(set(table["x"])):
                mine = table.loc[(table["series"] == name) & (table["x"] == layer), "value"].dropna().clip(-0.2, 1.2)
                if not len(mine):
                    continue
                at = layer + (i - (len(self.looks) - 1) / 2) * step
                line = {"color": colour, "linewidth": 1.0}
                whole: Any = {"whis": (0, 100), "showfliers": False, "manage_ticks": False}
                look: Any = {
                    "boxprops": line,
                    "whiskerprops": line,
                    "capprops": line,
                    "medianprops": {**line, "linewidth": 2},
                }
                axis.boxplot(mine, positions=[at], widths=step * 0.8, **whole, **look)
                side = at + np.linspace(-step / 5, step / 5, len(mine))
                axis.scatter(side, mine, s=7, marker=marker, color=colour, alpha=0.5, linewidths=0)
