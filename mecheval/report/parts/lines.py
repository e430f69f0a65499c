"""Lines over widths, lengths or steps: a panel per task or depth, a line per architecture."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import PercentFormatter
from pandas import DataFrame

from mecheval.report import vega
from mecheval.report.figure import GREY, SeriesPart, legend, panes, plain_log
from mecheval.report.tables import ordered
from mecheval.report.vega import Chart

LINE = 0.15  # inches for each line of the labels of y
PAPER: dict[str, Any] = {"marker": "o", "linestyle": ":", "markerfacecolor": "none"}
PAPER |= {"markersize": 7, "linewidth": 0.7, "alpha": 0.75}
EDGE = {"markeredgecolor": "white", "markeredgewidth": 0.5}
DOTS: dict[str, Any] = {"s": 7, "alpha": 0.55, "linewidths": 0, "zorder": 2.5}


@dataclass(frozen=True)
class Lines(SeriesPart):
    """A table with panel, row (of panels), x, series, value and the columns of `tables.read`.

    `looks` says which series there are and how they look. The scale is 0–100 %, or logarithmic for
    another `unit`. The steps of x are `even`, as for widths that double, or logarithmic.
    """

    unit: str = "%"
    even: bool = True
    dashed: tuple[str, ...] = ()

    def size(self) -> tuple[float, float]:
        panels, rows = len(ordered(self.table["panel"])), len(ordered(self.table["row"]))
        across, down = (2.3, 2.0) if panels < 5 else (1.5, 1.5)
        across = across if self.even else 3.6
        height = 0.9 + rows * down + (0.24 if self.title else 0)
        return self._left() + self._right() + panels * across, height

    def draw(self, figure: SubFigure) -> None:
        panels, rows = ordered(self.table["panel"]), ordered(self.table["row"])
        same = self.unit == "%"
        room: Any = {"left": self._left(), "right": self._right()}
        room |= {"title": self.title, "x_label": self.x_label}
        room |= {} if same else {"gap": (0.6, 0.2)}
        axes = panes(figure, len(rows), len(panels), **room, sharex=True, sharey=same)
        for i, row in enumerate(rows):
            for j, panel in enumerate(panels):
                here = (self.table["panel"] == panel) & (self.table["row"] == row)
                self._panel(axes[i, j], self.table[here])
                axes[i, j].set_title(panel if i == 0 else "")
            axes[i, 0].set_ylabel("\n".join([*_wrapped(row), self.y_label]))
        styles = {name: self._style(name) for name in self.looks}
        if self._compared:
            styles["paper"] = {"color": GREY, **PAPER}
        handles = [axes[0, 0].plot([], [], **style)[0] for style in styles.values()]
        legend(figure, handles, list(styles), self._right())

    def _left(self) -> float:
        return 0.55 + LINE * (1 + max(len(_wrapped(row)) for row in ordered(self.table["row"])))

    def _right(self) -> float:
        return 0.65 + 0.075 * max(map(len, self.looks))

    def _style(self, name: str) -> dict[str, Any]:
        colour, marker = self.looks[name]
        dash = "--" if name in self.dashed else "-"
        return {"color": colour, "marker": marker, "linestyle": dash, **EDGE}

    @property
    def _compared(self) -> bool:
        return "published" in self.table and bool(self.table["published"].notna().any())

    def chart(self) -> Chart:
        table = self.table[self.table["value"].notna()]
        log = {"scale": altair.Scale(type="log"), "axis": altair.Axis(format="~s")}
        number = vega.shares() if self.unit == "%" else log
        names = list(self.looks)
        patterns = [[4, 3] if name in self.dashed else [1, 0] for name in names]
        dashes = altair.Scale(domain=names, range=patterns)
        base = altair.Chart(table).encode(
            x=altair.X("x:O", title=self.x_label, axis=altair.Axis(labelAngle=0)),
            y=altair.Y("value:Q", title=self.y_label, **number),
            color=vega.series(self.looks),
        )
        if self._beside:
            base = base.encode(xOffset=altair.XOffset("series:N", sort=names))
        dash = altair.StrokeDash("series:N", legend=None, scale=dashes)
        layers = [base.mark_line().encode(strokeDash=dash)]
        layers.append(base.mark_rule(opacity=0.45).encode(y="low:Q", y2="high:Q"))
        layers.append(vega.seed_dots(base, "seed_values", xOffset=5).encode(y="seed_values:Q"))
        points = base.mark_point(filled=True, size=46, opacity=1)
        layers.append(points.encode(shape=vega.shape(self.looks), tooltip=vega.tooltips(table)))
        if self._compared:
            hollow = base.mark_point(shape="circle", size=90, strokeDash=[2, 2])
            layers.append(hollow.encode(y="published:Q"))
        width, height = (120, 130) if len(ordered(table["panel"])) >= 5 else (190, 170)
        layered = altair.layer(*layers).properties(width=width, height=height)
        rows = ordered(table["row"])
        facets: Any = {"row": altair.Row("row:N", sort=rows, title=None)} if len(rows) > 1 else {}
        return vega.titled(layered.facet(column=vega.panels(table), **facets), self.title)

    @property
    def _beside(self) -> bool:
        """Return whether series stand beside one another, since there is only one x."""
        return len(set(self.table["x"])) == 1

    def _panel(self, axis: Axes, table: DataFrame) -> None:
        every = sorted(set(self.table["x"]))
        for i, (name, (colour, _)) in enumerate(self.looks.items()):
            line = table[table["series"] == name].sort_values("x")
            shift = (i - (len(self.looks) - 1) / 2) * 0.11 if self._beside else 0.0
            steps = [every.index(x) + shift for x in line["x"]]
            at = np.array(steps if self.even else line["x"], dtype=float)
            axis.plot(at, line["value"], **self._style(name))
            axis.vlines(at, line["low"], line["high"], color=colour, alpha=0.5, linewidth=1.1)
            for x, seeds, values in zip(at, line["seeds"], line["seed_values"], strict=True):
                if seeds > 1:  # beside the mean, which would hide them
                    side = x + (0.035 if self._beside else 0.07) if self.even else x * 1.03
                    axis.scatter([side] * len(values), values, color=colour, **DOTS)
            if "published" in line:
                axis.plot(at, line["published"], color=colour, **PAPER)
                failed = line["state"].isin(["failed", "diverged"]).to_numpy()
                axis.plot(at[failed], np.zeros(failed.sum()), "x", color=colour, clip_on=False)
        self._axes(axis, every)

    def _axes(self, axis: Axes, every: Sequence[float | int]) -> None:
        if self.unit == "%":
            axis.set_ylim(-0.02, 1.04)
            axis.yaxis.set_major_formatter(PercentFormatter(1.0))
        else:
            axis.set_yscale("log")
            plain_log(axis.yaxis)
        if self.even:
            room = 0.6 if self._beside else 0.3
            axis.set_xticks(range(len(every)), [f"{x:g}" for x in every])
            axis.set_xlim(-room, len(every) - 1 + room)
        else:
            axis.set_xscale("log", base=2)
            axis.set_xticks(every, [f"{x:g}" for x in every])


def _wrapped(row: str) -> list[str]:
    return textwrap.wrap(row, 24)
