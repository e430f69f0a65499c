"""Differences with their intervals, pair below pair: a forest plot for each setting, a panel for each metric."""

from dataclasses import dataclass
from typing import Any

import altair
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import FuncFormatter, MaxNLocator, ScalarFormatter
from pandas import DataFrame

from mecheval.report.compare import DIFFER, Comparison
from mecheval.report.figure import GREY, Sheet, panes
from mecheval.report.labels import INK
from mecheval.report.tables import ordered
from mecheval.report.vega import Chart, colour, panels, titled

NOTE = (
    "Point: difference of means, the first group less the second. Bar: 95 % interval over seeds, not corrected for the "
    "number of comparisons. Dark and full: told apart, p corrected ({}) at most 0.05; grey and hollow: not."
)


def forest(comparison: Comparison) -> Sheet:
    """One part for each setting."""
    table = comparison.table.assign(value=comparison.table["difference"])
    table["label"] = table["a"] + " − " + table["b"]
    parts = [Forest(str(setting), own) for setting, own in table.groupby("setting", sort=False)]
    title = f"What {comparison.by} changes, over seeds"
    return Sheet.of(comparison.study, "compare", title, parts, NOTE.format(comparison.correction), *comparison.notes)


@dataclass(frozen=True)
class Forest:
    """Columns of the table: panel, label, value, low, high, answer."""

    title: str
    table: DataFrame

    def size(self) -> tuple[float, float]:
        labels, shown = ordered(self.table["label"]), ordered(self.table["panel"])
        return 0.15 + self._left() + 2.6 * len(shown), 0.9 + 0.26 * len(labels)

    def _left(self) -> float:
        return 0.2 + 0.085 * max(map(len, self.table["label"]))

    def draw(self, figure: SubFigure) -> None:
        labels, shown = ordered(self.table["label"]), ordered(self.table["panel"])
        room: Any = {"left": self._left(), "right": 0.3, "gap": (0.25, 0.0), "title": self.title}
        axes = panes(figure, 1, len(shown), **room, sharey=True)[0]
        for axis, panel in zip(axes, shown, strict=True):
            self._panel(axis, panel, labels)
        axes[0].set_yticks(range(len(labels)), labels)

    def _panel(self, axis: Axes, panel: str, labels: list[str]) -> None:
        axis.axvline(0, color="#bbbbbb", linewidth=0.8, zorder=1)
        for line in self.table[self.table["panel"] == panel].to_dict("records"):
            at, ink = labels.index(line["label"]), INK if line["answer"] == DIFFER else GREY
            axis.hlines(at, line["low"], line["high"], color=ink, linewidth=1.3)
            face = ink if line["answer"] == DIFFER else "white"
            axis.plot(line["value"], at, "o", color=ink, markerfacecolor=face, markersize=5, zorder=3)
        axis.set(title=panel, ylim=(len(labels) - 0.5, -0.5))
        axis.tick_params(axis="y", length=0)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        percent = FuncFormatter(lambda value, _: f"{100 * value:g}%".replace("-", "−"))
        axis.xaxis.set_major_formatter(ScalarFormatter() if panel == "loss" else percent)

    def chart(self) -> Chart:
        numbers = ("value", "low", "high", "p", "corrected_p")
        tooltips = [altair.Tooltip(f"{name}:Q", format=".3f") for name in numbers]
        tooltips += [altair.Tooltip(f"{name}:N") for name in ("label", "answer", "seeds_a", "seeds_b", "paired")]
        inks = {answer: INK if answer == DIFFER else GREY for answer in ordered(self.table["answer"])}
        base = altair.Chart(self.table).encode(
            y=altair.Y("label:N", sort=ordered(self.table["label"]), title=None),
            color=colour(inks, "answer"),
            tooltip=tooltips,
        )
        drawn = base.mark_rule().encode(x=altair.X("low:Q", title=None), x2="high:Q")
        drawn += base.mark_point(filled=True, size=60, opacity=1).encode(x="value:Q")
        faceted = drawn.properties(width=230).facet(column=panels(self.table)).resolve_scale(x="independent")
        return titled(faceted, self.title)
