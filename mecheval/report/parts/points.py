"""Clouds of checkpoints, one number against another; and boxes over layers."""

from dataclasses import dataclass
from typing import Any

import altair
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from pandas import DataFrame

from mecheval.report.figure import SeriesPart, legend, panes
from mecheval.report.tables import ordered
from mecheval.report.vega import Chart, panels, seed_dots, series, shape, shares, titled

LEFT, RIGHT = 0.85, 1.35  # inches for labels and legend
EDGE: dict[str, Any] = {"linewidths": 0.5, "edgecolors": "white", "zorder": 3}
DOTS: dict[str, Any] = {"s": 7, "alpha": 0.55, "linewidths": 0, "zorder": 2}


@dataclass(frozen=True)
class Points(SeriesPart):
    """A table with panel, series, x, y (fractions) and chosen (drawn large, with their seeds).

    `x_seeds` and `y_seeds` are lists with the numbers of the same seeds; `ends` are of both axes.
    """

    ends: tuple[float, float] = (0.0, 1.0)

    def size(self) -> tuple[float, float]:
        panels = len(ordered(self.table["panel"]))
        return LEFT + RIGHT + 2.5 * panels, 3.2 + (0.24 if self.title else 0)

    def draw(self, figure: SubFigure) -> None:
        panels = ordered(self.table["panel"])
        room: Any = {"left": LEFT, "right": self._right(figure), "gap": (0.25, 0.0)}
        room |= {"title": self.title, "x_label": self.x_label, "sharex": True, "sharey": True}
        axes = panes(figure, 1, len(panels), **room)[0]
        margin = 0.03 * (self.ends[1] - self.ends[0])
        limits = (self.ends[0] - margin, self.ends[1] + margin)
        for axis, panel in zip(axes, panels, strict=True):
            self._panel(axis, self.table[self.table["panel"] == panel])
            axis.set(title=panel, xlim=limits, ylim=limits, aspect="equal")
            axis.xaxis.set_major_locator(MaxNLocator(4))
            axis.xaxis.set_major_formatter(PercentFormatter(1.0))
            axis.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes[0].set_ylabel(self.y_label)
        handles, names = axes[0].get_legend_handles_labels()
        legend(figure, handles, names, self._right(figure))

    def _panel(self, axis: Axes, table: DataFrame) -> None:
        axis.plot(self.ends, self.ends, "-", color="#bbbbbb", linewidth=0.8, zorder=1)
        for name, (colour, marker) in self.looks.items():
            series = table[table["series"] == name]
            chosen = series["chosen"].astype(bool)
            best, others = series[chosen], series[~chosen]
            look: Any = {"marker": marker, "color": colour, **EDGE}
            axis.scatter(others["x"], others["y"], s=14, alpha=0.45, **look)
            axis.scatter(best["x"], best["y"], s=46, label=name, **look)
            for x, y in zip(best["x_seeds"], best["y_seeds"], strict=True):
                if len(x) > 1:
                    axis.scatter(x, y, color=colour, **DOTS)

    def _right(self, figure: SubFigure) -> float:
        """Return a wider margin where other parts are wider: the panels stay square."""
        width = figure.bbox.width / figure.get_dpi()
        return max(RIGHT, width - LEFT - 2.7 * len(ordered(self.table["panel"])))

    def chart(self) -> Chart:
        numbers = [
            altair.Tooltip("x:Q", title=self.x_label, format=".1%"),
            altair.Tooltip("y:Q", title=self.y_label, format=".1%"),
        ]
        base = altair.Chart(self.table).encode(
            x=altair.X("x:Q", title=self.x_label, **shares(self.ends)),
            y=altair.Y("y:Q", title=self.y_label, **shares(self.ends)),
            color=series(self.looks),
        )
        points = base.mark_point(filled=True, clip=True).encode(
            shape=shape(self.looks),
            size=altair.condition("datum.chosen", altair.value(80), altair.value(22)),
            opacity=altair.condition("datum.chosen", altair.value(1), altair.value(0.45)),
            tooltip=["series:N", "width:Q", "rate:Q", *numbers],
        )
        dots = seed_dots(base.transform_filter("datum.chosen"), "x_seeds", "y_seeds", clip=True)
        layered = altair.layer(points, dots.encode(x="x_seeds:Q", y="y_seeds:Q"))
        sized = layered.properties(width=220, height=220)
        return titled(sized.facet(column=panels(self.table)), self.title)


@dataclass(frozen=True)
class Boxes(SeriesPart):
    """A box for each series and x, from a table with panel, series, x (a layer) and value.

    Every run is a dot, so that there is no mean over seeds.
    """

    shows_seeds = False

    def size(self) -> tuple[float, float]:
        across = sum(0.4 + 0.95 * n for n in self._layers().values())
        return LEFT + RIGHT + across, 2.9 + (0.24 if self.title else 0)

    def draw(self, figure: SubFigure) -> None:
        layers = self._layers()
        room: Any = {"left": LEFT, "right": RIGHT}
        room |= {"title": self.title, "x_label": self.x_label}
        grid = {"width_ratios": list(layers.values())}
        axes = panes(figure, 1, len(layers), **room, sharey=True, gridspec_kw=grid)[0]
        for axis, (panel, depth) in zip(axes, layers.items(), strict=True):
            self._panel(axis, self.table[self.table["panel"] == panel])
            axis.set(title=panel, ylim=(-0.2, 1.2), xlim=(-0.5, depth - 0.5))
            axis.set_xticks(range(depth), [str(layer) for layer in range(depth)])
            axis.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes[0].set_ylabel(self.y_label)
        colours = [colour for colour, _ in self.looks.values()]
        handles = [axes[0].plot([], [], "s", color=colour)[0] for colour in colours]
        legend(figure, handles, list(self.looks), RIGHT)

    def chart(self) -> Chart:
        base = altair.Chart(self.table).encode(
            x=altair.X("x:O", title=self.x_label, axis=altair.Axis(labelAngle=0)),
            xOffset=altair.XOffset("series:N", sort=list(self.looks)),
            y=altair.Y("value:Q", title=self.y_label, **shares((-0.2, 1.2))),
            color=series(self.looks),
        )
        boxes = base.mark_boxplot(extent="min-max", size=9, opacity=0.75)
        layered = altair.layer(boxes, base.mark_circle(size=9, opacity=0.6, clip=True))
        sized = layered.properties(width=altair.Step(13), height=190)
        faceted = sized.facet(column=panels(self.table)).resolve_scale(x="independent")
        return titled(faceted, self.title)

    def _layers(self) -> dict[str, int]:
        """Return the number of layers by panel."""
        last = self.table.groupby("panel", sort=False)["x"].max()
        return {str(panel): int(layer) + 1 for panel, layer in last.items()}

    def _panel(self, axis: Axes, table: DataFrame) -> None:
        step = 0.84 / max(len(self.looks), 1)
        for i, (name, (colour, marker)) in enumerate(self.looks.items()):
            for layer in sorted(set(table["x"])):
                here = (table["series"] == name) & (table["x"] == layer)
                values = table.loc[here, "value"].dropna().clip(-0.2, 1.2)
                if not len(values):
                    continue
                at = layer + (i - (len(self.looks) - 1) / 2) * step
                line = {"color": colour, "linewidth": 1.0}
                look: Any = dict.fromkeys(("boxprops", "whiskerprops", "capprops"), line)
                look |= {"medianprops": {**line, "linewidth": 2}, "widths": step * 0.8}
                whole: Any = {"whis": (0, 100), "showfliers": False, "manage_ticks": False}
                axis.boxplot(values, positions=[at], **whole, **look)
                side = at + np.linspace(-step / 5, step / 5, len(values))
                axis.scatter(side, values, marker=marker, color=colour, **DOTS)
