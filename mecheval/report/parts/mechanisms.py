"""Accuracy and mechanism of many models: bars with switches beside them, and a map of mechanisms.

Both draw lines of `verdicts.verdicts`: the colour is the mechanism of most seeds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import altair
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import SubFigure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import PercentFormatter

from mecheval.report import labels
from mecheval.report.figure import GREY, TablePart, panes
from mecheval.report.tables import ordered
from mecheval.report.vega import INK_OF_PAGE, Chart, colour, panels, seed_dots, shares, titled
from mecheval.report.verdict_figure import DOTS, HATCHED, MECHANISMS

SHORT = {"direct retrieval": "direct", "association at next_key": "next key"}
NAMED = {name: look for name, look in MECHANISMS.items() if name}
ROW, SWITCH, BAR = 0.33, 0.62, 2.5  # inches
FAINTEST = 0.12  # of a cell at chance


@dataclass(frozen=True)
class MechanismBars(TablePart):
    """A table of verdicts with panel and label; `switches` are columns of short texts or "".

    Rows are the labels, and each panel has a bar in each. The switches stand between the two.
    """

    switches: tuple[str, ...] = ()

    def size(self) -> tuple[float, float]:
        panels, rows = len(ordered(self.table["panel"])), len(ordered(self.table["label"]))
        across = panels * (BAR + 1.15) + SWITCH * len(self.switches)
        return self.label_width() + across, 1.15 + ROW * rows

    def draw(self, figure: SubFigure) -> None:
        panels, rows = ordered(self.table["panel"]), ordered(self.table["label"])
        records = self.table.to_dict("records")
        cells = {(line["panel"], line["label"]): line for line in records}
        widths = [SWITCH * len(self.switches)] * bool(self.switches) + [BAR + 1.0] * len(panels)
        room: Any = {"left": self.label_width(), "gap": (0.15, 0.0), "x_label": "accuracy on test"}
        room |= {"gridspec_kw": {"width_ratios": widths}, "sharey": True}
        axes = panes(figure, 1, len(widths), **room)[0]
        axes[0].set_yticks(range(len(rows)), rows)
        axes[0].set_ylim(len(rows) - 0.5, -0.5)
        if self.switches:
            by_label = {line["label"]: line for line in records}
            _switches(axes[0], self.switches, [by_label[row] for row in rows])
        for axis, panel in zip(axes[bool(self.switches) :], panels, strict=True):
            axis.set(title=panel, xlim=(0, 1.0 + 1.0 / BAR))
            axis.set_xticks([0, 0.25, 0.5, 0.75, 1.0])
            axis.xaxis.set_major_formatter(PercentFormatter(1.0))
            axis.grid(axis="y", visible=False)
            axis.spines["bottom"].set_bounds(0, 1)
            for y, row in enumerate(rows):
                _bar(axis, y, cells.get((panel, row)))
        for axis in axes:
            axis.tick_params(axis="y", length=0)
        _key(figure)

    def chart(self) -> Chart:
        table = self.table.assign(mechanism=self.table["mechanism"].replace("", "unsolved"))
        tips = [altair.Tooltip(f"{name}:N") for name in ("label", *self.switches, "mechanism")]
        tips += [altair.Tooltip(f"{name}:Q", format=".1%") for name in ("value", "low", "high")]
        tips += [altair.Tooltip("agree:Q", title="seeds with it"), altair.Tooltip("judged:Q")]
        y = altair.Y("label:N", sort=ordered(table["label"]), title=None)
        base = altair.Chart(table).encode(y=y, tooltip=tips)
        x = altair.X("value:Q", title="accuracy on test", **shares())
        bars = base.mark_bar(height=12).encode(x=x, color=colour(NAMED, "mechanism"))
        bars += base.mark_rule().encode(x="low:Q", x2="high:Q")
        bars += seed_dots(base, "seed_values", color=INK_OF_PAGE).encode(x="seed_values:Q")
        bars += base.mark_tick(thickness=1.2, size=16).encode(x="chance:Q")
        layered = bars.properties(width=240, height=altair.Step(20))
        return titled(layered.facet(column=panels(table)), self.title)


@dataclass(frozen=True)
class MechanismMap(TablePart):
    """A table of verdicts with panel, y and x: a cell's colour is its mechanism.

    The colour is the stronger the more accurate the model is above what needs no recall.
    """

    shows_seeds = False

    x_label: str
    y_label: str

    def size(self) -> tuple[float, float]:
        panels, rows, columns = (ordered(self.table[name]) for name in ("panel", "y", "x"))
        return self._left() + len(panels) * (0.78 * len(columns) + 0.2), 1.5 + 0.52 * len(rows)

    def draw(self, figure: SubFigure) -> None:
        panels, rows, columns = (ordered(self.table[name]) for name in ("panel", "y", "x"))
        records = self.table.to_dict("records")
        lines = {(line["panel"], line["y"], line["x"]): line for line in records}
        room: Any = {"left": self._left(), "title": self.title, "x_label": self.x_label}
        axes = panes(figure, 1, len(panels), **room, sharey=True)[0]
        for axis, panel in zip(axes, panels, strict=True):
            axis.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5), title=panel)
            axis.set_xticks(range(len(columns)), columns)
            axis.set_yticks(range(len(rows)), rows)
            axis.grid(False)
            axis.tick_params(length=0)
            axis.spines[:].set_visible(False)
            for y, row in enumerate(rows):
                for x, column in enumerate(columns):
                    _cell(axis, x, y, lines.get((panel, row, column)))
        axes[0].set_ylabel(self.y_label)
        _key(figure)

    def _left(self) -> float:
        return 0.45 + 0.078 * max(len(str(y)) for y in self.table["y"])

    def chart(self) -> Chart:
        lines = self.table.to_dict("records")
        table = self.table.assign(
            text=[_percent(line) for line in lines],
            below=[_agreeing(line) for line in lines],
            strength=[_strength(line) for line in lines],
            mechanism=self.table["mechanism"].replace("", "unsolved"),
        )
        tips = [altair.Tooltip(f"{name}:N") for name in ("y", "x", "mechanism", "below")]
        tips += [altair.Tooltip(f"{name}:Q", format=".1%") for name in ("value", "low", "high")]
        flat = altair.Axis(labelAngle=0)
        base = altair.Chart(table).encode(
            x=altair.X("x:N", sort=ordered(table["x"]), title=self.x_label, axis=flat),
            y=altair.Y("y:N", sort=ordered(table["y"]), title=self.y_label or None),
            tooltip=tips,
        )
        opacity = altair.Opacity("strength:Q", legend=None, scale=altair.Scale(domain=[0, 1]))
        cells = base.mark_rect(stroke="white").encode(color=colour(NAMED, "mechanism"))
        texts = base.mark_text(dy=-6, fontWeight="bold").encode(text="text:N")
        small = base.mark_text(dy=8).encode(text="below:N")
        layered = cells.encode(opacity=opacity) + texts + small
        width, height = altair.Step(66), altair.Step(40)
        layered = layered.properties(width=width, height=height)
        return titled(layered.facet(column=panels(table)), self.title)


def _bar(axis: Axes, y: int, line: Mapping[str, Any] | None) -> None:
    """Draw accuracy, interval and seeds, and name the mechanism at the right."""
    small: Any = {"va": "center", "fontsize": 7}
    if line is None or line["state"] != "measured":
        axis.add_patch(Rectangle((0, y - 0.34), 1, 0.68, linewidth=0, **HATCHED))
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
        state = "not planned" if line is None else line["state"]
        axis.text(0.5, y, state, ha="center", color=GREY, bbox=box, **small)
        return
    ink = MECHANISMS.get(line["mechanism"], GREY)
    axis.barh(y, line["value"], height=0.68, color=ink)
    axis.vlines(line["chance"], y - 0.42, y + 0.42, color=labels.INK, linewidth=0.8, linestyle=":")
    axis.hlines(y, line["low"], line["high"], color=labels.INK, linewidth=1)
    if line["seeds"] > 1:
        values = line["seed_values"]
        axis.scatter(values, [y + 0.18] * len(values), zorder=3, **DOTS)
    axis.text(1.02, y, f"{_percent(line)} {_agreeing(line)}", color=ink, weight="bold", **small)


def _switches(axis: Axes, names: tuple[str, ...], lines: list[dict[str, Any]]) -> None:
    """Draw a column for each switch: its text where it is on, a dot where it is off."""
    axis.set(xlim=(-0.5, len(names) - 0.5))
    axis.set_xticks(range(len(names)), names, fontsize=7.5)
    axis.xaxis.tick_top()
    axis.grid(False)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    for y, line in enumerate(lines):
        if y % 2 == 0:
            axis.add_patch(Rectangle((-0.5, y - 0.5), len(names), 1, color="#f4f4f4", zorder=0))
        for x, name in enumerate(names):
            text = line[name] or "·"
            look: Any = {"color": labels.INK if line[name] else GREY, "fontsize": 7.5}
            axis.text(x, y, text, ha="center", va="center", **look)


def _cell(axis: Axes, x: int, y: int, line: Mapping[str, Any] | None) -> None:
    place = (x - 0.48, y - 0.46)
    centred: Any = {"ha": "center", "va": "center"}
    if line is None:
        return  # the model has no such place
    if line["state"] != "measured":
        axis.add_patch(Rectangle(place, 0.96, 0.92, linewidth=0, **HATCHED))
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
        axis.text(x, y, line["state"], fontsize=6, color=GREY, bbox=box, **centred)
        return
    ink, alpha = to_rgb(MECHANISMS.get(line["mechanism"], GREY)), _strength(line)
    face = tuple(alpha * part + 1 - alpha for part in ink)
    axis.add_patch(Rectangle(place, 0.96, 0.92, facecolor=face, edgecolor="none"))
    colour = "white" if alpha > 0.6 else labels.INK
    axis.text(x, y - 0.14, _percent(line), fontsize=9, color=colour, **centred)
    axis.text(x, y + 0.22, _agreeing(line), fontsize=6, color=colour, **centred)


def _strength(line: Mapping[str, Any]) -> float:
    """Return the accuracy from chance, which is faint, to 1."""
    if line["state"] != "measured":
        return 0.0
    chance = line["chance"] if line["chance"] == line["chance"] else 0.0
    above = (line["value"] - chance) / (1 - chance)
    return FAINTEST + (1 - FAINTEST) * min(max(above, 0.0), 1.0)


def _percent(line: Mapping[str, Any]) -> str:
    return f"{100 * line['value']:.0f} %" if line["state"] == "measured" else ""


def _agreeing(line: Mapping[str, Any]) -> str:
    """Return the mechanism, and of how many seeds it is if they differ."""
    name = str(line["mechanism"] or "no verdict")
    several = f" {line['agree']}/{line['judged']}" if line["agree"] < line["judged"] else ""
    return f"{SHORT.get(name, name)}{several}"


def _key(figure: SubFigure) -> None:
    """Draw the colours of the mechanisms below the axes, at the left."""
    width = figure.bbox.width / figure.get_dpi()
    handles = [Patch(color=look, label=name) for name, look in NAMED.items()]
    place: Any = {"loc": "lower left", "bbox_to_anchor": (0.1 / width, 0.0), "ncols": 5}
    figure.legend(handles=handles, fontsize=7, frameon=False, columnspacing=1.0, **place)
