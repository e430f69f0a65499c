"""Heat maps with numbers in the cells: a panel for each reading, one field down, another across."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import altair
import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import SubFigure
from matplotlib.patches import Rectangle
from pandas import isna

from mecheval.report.figure import GREY, TablePart, panes
from mecheval.report.tables import ordered
from mecheval.report.vega import Chart, ink, panels, shade, titled, tooltips

CELL_WIDTH, CELL_HEIGHT, LETTER = 0.56, 0.5, 0.08  # inches
WORDS = {"diverged": "diverged", "failed": "failed", "missing": "not yet", "not measured": "–"}
INKS = (("#222222", "#222222", "#4d4d4d"), ("white", "white", "#e2e2e2"))  # on light, on dark


@dataclass(frozen=True)
class Heat(TablePart):
    """A table with panel, y, x, value (a fraction) and the columns of `tables.read`, in order."""

    shows_seeds = False

    x_label: str
    y_label: str

    def size(self) -> tuple[float, float]:
        panels, rows, columns = (ordered(self.table[name]) for name in ("panel", "y", "x"))
        heading = max(map(len, panels)) * LETTER
        across = max(len(columns) * CELL_WIDTH, heading, 1.25) + 0.14
        height = 0.85 + len(rows) * CELL_HEIGHT + (0.24 if self.title else 0)
        return self._left() + len(panels) * across, height

    def draw(self, figure: SubFigure) -> None:
        panels, rows, columns = (ordered(self.table[name]) for name in ("panel", "y", "x"))
        room: Any = {"left": self._left(), "title": self.title, "x_label": self.x_label}
        axes = panes(figure, 1, len(panels), **room, sharey=True)[0]
        records = self.table.to_dict("records")
        lines = {(line["panel"], line["y"], line["x"]): line for line in records}
        for axis, panel in zip(axes, panels, strict=True):
            axis.set(xlim=(0, len(columns)), ylim=(0, len(rows)), title=panel)
            axis.set_xticks([i + 0.5 for i in range(len(columns))], columns)
            axis.set_yticks([i + 0.5 for i in range(len(rows))], rows)
            axis.invert_yaxis()
            axis.grid(False)
            axis.tick_params(length=0)
            axis.spines[:].set_visible(False)
            for y, row in enumerate(rows):
                for x, column in enumerate(columns):
                    _cell(axis, x, y, lines.get((panel, row, column)))
        axes[0].set_ylabel(self.y_label)

    def _left(self) -> float:
        longest = max(len(str(y)) for y in self.table["y"])
        return 0.25 + longest * 0.075 + (0.22 if self.y_label else 0)

    def chart(self) -> Chart:
        texts = [_texts(line) for line in self.table.to_dict("records")]
        table = self.table.assign(
            text=[first for first, *_ in texts],
            below=["\n".join(rest) for _, *rest in texts],
            x=self.table["x"].astype(str),
            y=self.table["y"].astype(str),
        )
        flat = altair.Axis(labelAngle=0)
        base = altair.Chart(table).encode(
            x=altair.X("x:N", sort=ordered(table["x"]), title=self.x_label, axis=flat),
            y=altair.Y("y:N", sort=ordered(table["y"]), title=self.y_label or None),
            tooltip=tooltips(table),
        )
        blanks = base.mark_rect(stroke="white", color="#cfcfcf")
        cells = base.transform_filter("isValid(datum.value)").mark_rect(stroke="white")
        cells = cells.encode(color=shade("value"))
        lines = max(map(len, texts))
        up = -6 * (lines - 1)
        bold = base.mark_text(fontWeight="bold", dy=up)
        numbers = bold.encode(text="text:N", color=ink("value"))
        small = base.mark_text(dy=up + 12, lineBreak="\n", lineHeight=12)
        below = small.encode(text="below:N", color=ink("value"))
        heading = max(map(len, ordered(table["panel"])))
        across = max(len(ordered(table["x"])) * 41, heading * 8)
        layered = blanks + cells + numbers + below
        layered = layered.properties(width=across, height=altair.Step(max(30, 13 * lines + 6)))
        return titled(layered.facet(column=panels(table)), self.title)


def _cell(axis: Axes, x: int, y: int, line: Mapping[str, Any] | None) -> None:
    centred: Any = {"ha": "center", "va": "center"}
    if line is None or isna(line["value"]):
        state = "missing" if line is None else line["state"]
        hatch = "..." if state == "missing" else "" if state == "not measured" else "//////"
        look: Any = {"facecolor": "#f1f1f1", "edgecolor": "#a8a8a8", "hatch": hatch, "linewidth": 0}
        axis.add_patch(Rectangle((x, y), 1, 1, **look))
        axis.add_patch(Rectangle((x, y), 1, 1, fill=False, edgecolor="white", linewidth=1.5))
        box = {"facecolor": "#f1f1f1", "edgecolor": "none", "pad": 1.0}
        axis.text(x + 0.5, y + 0.5, WORDS[state], fontsize=6, color=GREY, bbox=box, **centred)
        return
    face = mpl.colormaps["YlGnBu"](Normalize(0, 1)(line["value"]))
    axis.add_patch(Rectangle((x, y), 1, 1, facecolor=face, edgecolor="white", linewidth=1.5))
    inks = INKS[line["value"] > 0.5]
    texts = _texts(line)
    places = (0.4, 0.72) if len(texts) == 2 else (0.3, 0.58, 0.82)
    for text, down, size, colour in zip(texts, places, (9, 6, 5.6), inks, strict=False):
        axis.text(x + 0.5, y + down, text, fontsize=size, color=colour, **centred)


def _texts(line: Mapping[str, Any]) -> list[str]:
    """Return the number in per cent, its interval, and the paper's with the difference."""
    if isna(line["value"]):
        return ["", WORDS[line["state"]]]
    value, low, high = (100 * line[name] for name in ("value", "low", "high"))
    # adding 0.0 turns −0 into 0
    texts = [f"{round(value, 1) + 0.0:.1f}", f"[{round(low) + 0.0:.0f}, {round(high) + 0.0:.0f}]"]
    if not isna(line["published"]):
        texts.append(f"{100 * line['published']:.1f} {100 * line['difference']:+.1f}")
    return [text.replace("-", "−") for text in texts]
