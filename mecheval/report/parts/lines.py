"""Lines over widths, lengths or steps: a panel for each task or depth, a line for each architecture."""

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

from mecheval.report.figure import GREY, legend, panes, plain_log
from mecheval.report.tables import ordered
from mecheval.report.vega import Chart, Looks, panels, series, shape, shares, titled, tooltips

LINE = 0.15  # inches for each line of the labels of y
HOLLOW = {"markerfacecolor": "none", "markersize": 7, "linewidth": 0.7, "alpha": 0.75}


@dataclass(frozen=True)
class Lines:
    """Columns of the table: panel, row (of panels), x, series, value and those of `tables.read`.

    `looks` says which series there are and how they look. A scale of 0–100 % unless `unit` is another's; then it is
    logarithmic, as x is where `even` is false: even steps are for widths, each twice the one before.
    """

    title: str
    table: DataFrame
    looks: Looks
    x_label: str
    y_label: str
    unit: str = "%"
    even: bool = True
    dashed: tuple[str, ...] = ()

    def size(self) -> tuple[float, float]:
        panels, rows = len(ordered(self.table["panel"])), len(ordered(self.table["row"]))
        across, down = (2.3, 2.0) if panels < 5 else (1.5, 1.5)
        across = across if self.even else 3.6
        return self._left() + self._right() + panels * across, 0.9 + rows * down + (0.24 if self.title else 0)

    def draw(self, figure: SubFigure) -> None:
        panels, rows = ordered(self.table["panel"]), ordered(self.table["row"])
        same = self.unit == "%"
        room: Any = {"left": self._left(), "right": self._right(), "title": self.title, "x_label": self.x_label}
        room |= {} if same else {"gap": (0.6, 0.2)}
        axes = panes(figure, len(rows), len(panels), **room, sharex=True, sharey=same)
        for i, row in enumerate(rows):
            for j, panel in enumerate(panels):
                mine = self.table[(self.table["panel"] == panel) & (self.table["row"] == row)]
                self._panel(axes[i, j], mine)
                axes[i, j].set_title(panel) if i == 0 else None
            axes[i, 0].set_ylabel("\n".join([*_wrapped(row), self.y_label]))
        looks = {**self.looks, **({"paper": (GREY, "o")} if self._compared else {})}
        handles = [axes[0, 0].plot([], [], **self._style(name, *look))[0] for name, look in looks.items()]
        legend(figure, handles, list(looks), self._right())

    def _left(self) -> float:
        return 0.55 + LINE * (1 + max(len(_wrapped(row)) for row in ordered(self.table["row"])))

    def _right(self) -> float:
        return 0.65 + 0.075 * max(map(len, self.looks))

    def _style(self, name: str, colour: str, marker: str) -> dict[str, Any]:
        if name == "paper":
            return {"color": colour, "marker": "o", "linestyle": ":", **HOLLOW}
        dash = "--" if name in self.dashed else "-"
        return {
            "color": colour,
            "marker": marker,
            "linestyle": dash,
            "markeredgecolor": "white",
            "markeredgewidth": 0.5,
        }

    @property
    def _compared(self) -> bool:
        return "published" in self.table and bool(self.table["published"].notna().any())

    def chart(self) -> Chart:
        table = self.table[self.table["value"].notna()]
        number = shares() if self.unit == "%" else {"scale": altair.Scale(type="log"), "axis": altair.Axis(format="~s")}
        names = list(self.looks)
        dashes = altair.Scale(domain=names, range=[[4, 3] if name in self.dashed else [1, 0] for name in names])
        base = altair.Chart(table).encode(
            x=altair.X("x:O", title=self.x_label, axis=altair.Axis(labelAngle=0)),
            y=altair.Y("value:Q", title=self.y_label, **number),
            color=series(self.looks),
        )
        if self._beside:
            base = base.encode(xOffset=altair.XOffset("series:N", sort=names))
        drawn = [base.mark_line().encode(strokeDash=altair.StrokeDash("series:N", legend=None, scale=dashes))]
        drawn.append(base.mark_rule(opacity=0.45).encode(y="low:Q", y2="high:Q"))
        points = base.mark_point(filled=True, size=46, opacity=1)
        drawn.append(points.encode(shape=shape(self.looks), tooltip=tooltips(table)))
        if self._compared:
            drawn.append(base.mark_point(shape="circle", size=90, strokeDash=[2, 2]).encode(y="published:Q"))
        wide = len(ordered(table["panel"])) >= 5
        layered = altair.layer(*drawn).properties(width=120 if wide else 190, height=130 if wide else 170)
        rows = ordered(table["row"])
        facets: Any = {"row": altair.Row("row:N", sort=rows, title=None)} if len(rows) > 1 else {}
        return titled(layered.facet(column=panels(table), **facets), self.title)

    @property
    def _beside(self) -> bool:
        """Where there is one width alone, series stand beside one another."""
        return len(set(self.table["x"])) == 1

    def _panel(self, axis: Axes, table: DataFrame) -> None:
        every = sorted(set(self.table["x"]))
        for i, (name, (colour, marker)) in enumerate(self.looks.items()):
            found = table[table["series"] == name].sort_values("x")
            shift = (i - (len(self.looks) - 1) / 2) * 0.11 if self._beside else 0.0
            at = np.array([every.index(x) + shift for x in found["x"]] if self.even else found["x"], dtype=float)
            axis.plot(at, found["value"], **self._style(name, colour, marker))
            axis.vlines(at, found["low"], found["high"], color=colour, alpha=0.5, linewidth=1.1)
            if "published" in found:
                axis.plot(at, found["published"], **self._style("paper", colour, "o"))
                failed = found["state"].isin(["failed", "diverged"]).to_numpy()
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
