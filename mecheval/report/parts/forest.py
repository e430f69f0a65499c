"""Forest plots of differences with their intervals: one per setting, a panel per metric."""

from dataclasses import dataclass
from typing import Any

import altair
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import FuncFormatter, MaxNLocator, ScalarFormatter

from mecheval.report.compare import DIFFER, Comparison
from mecheval.report.figure import GREY, Figure, TablePart, panes
from mecheval.report.labels import INK
from mecheval.report.tables import ordered
from mecheval.report.vega import Chart, colour, panels, seed_dots, titled

NOTE = (
    "Point: difference of means, the first group less the second. Bar: Student's 95 % interval "
    "over seeds, not corrected for the number of comparisons. Small dots: pairs of runs with the "
    "same seed. "
    "Dark and full: p corrected ({}) is at most 0.05; grey and hollow: it is not."
)


def forest(comparison: Comparison) -> Figure:
    """Draw a comparison, with a part for each setting."""
    table = comparison.table.assign(value=comparison.table["difference"])
    table["label"] = table["a"] + " − " + table["b"]
    table["seeds"] = table["pair_differences"].map(len)
    parts = [Forest(str(setting), lines) for setting, lines in table.groupby("setting", sort=False)]
    title = f"What {comparison.by} changes, over seeds"
    notes = [NOTE.format(comparison.correction), *comparison.notes]
    return Figure.of(comparison.study, "compare", title, parts, *notes)


@dataclass(frozen=True)
class Forest(TablePart):
    """A table with panel, label, value, low, high, answer, pair_differences and seeds (pairs)."""

    def size(self) -> tuple[float, float]:
        labels, panels = ordered(self.table["label"]), ordered(self.table["panel"])
        return 0.15 + self.label_width() + 2.6 * len(panels), 0.9 + 0.26 * len(labels)

    def draw(self, figure: SubFigure) -> None:
        labels, panels = ordered(self.table["label"]), ordered(self.table["panel"])
        room: Any = {
            "left": self.label_width(),
            "right": 0.3,
            "gap": (0.25, 0.0),
            "title": self.title,
        }
        axes = panes(figure, 1, len(panels), **room, sharey=True)[0]
        for axis, panel in zip(axes, panels, strict=True):
            self._panel(axis, panel, labels)
        axes[0].set_yticks(range(len(labels)), labels)

    def _panel(self, axis: Axes, panel: str, labels: list[str]) -> None:
        axis.axvline(0, color="#bbbbbb", linewidth=0.8, zorder=1)
        for line in self.table[self.table["panel"] == panel].to_dict("records"):
            at, ink = labels.index(line["label"]), INK if line["answer"] == DIFFER else GREY
            axis.hlines(at, line["low"], line["high"], color=ink, linewidth=1.3)
            pairs = line["pair_differences"]
            axis.scatter(pairs, [at + 0.22] * len(pairs), s=7, color=ink, alpha=0.55, linewidths=0)
            face = ink if line["answer"] == DIFFER else "white"
            look: Any = {"color": ink, "markerfacecolor": face, "markersize": 5, "zorder": 3}
            axis.plot(line["value"], at, "o", **look)
        axis.set(title=panel, ylim=(len(labels) - 0.5, -0.5))
        axis.tick_params(axis="y", length=0)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        percent = FuncFormatter(lambda value, _: f"{100 * value:g}%".replace("-", "−"))
        axis.xaxis.set_major_formatter(ScalarFormatter() if panel == "loss" else percent)

    def chart(self) -> Chart:
        numbers = ("value", "low", "high", "p", "corrected_p")
        texts = ("label", "answer", "seeds_a", "seeds_b", "paired")
        tips = [altair.Tooltip(f"{name}:Q", format=".3f") for name in numbers]
        tips += [altair.Tooltip(f"{name}:N") for name in texts]
        answers = ordered(self.table["answer"])
        inks = {answer: INK if answer == DIFFER else GREY for answer in answers}
        base = altair.Chart(self.table).encode(
            y=altair.Y("label:N", sort=ordered(self.table["label"]), title=None),
            color=colour(inks, "answer"),
            tooltip=tips,
        )
        layers = base.mark_rule().encode(x=altair.X("low:Q", title=None), x2="high:Q")
        layers += seed_dots(base, "pair_differences", yOffset=6).encode(x="pair_differences:Q")
        layers += base.mark_point(filled=True, size=60, opacity=1).encode(x="value:Q")
        faceted = layers.properties(width=230).facet(column=panels(self.table))
        return titled(faceted.resolve_scale(x="independent"), self.title)
