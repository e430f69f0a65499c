"""The verdict figure: how well each architecture recalls, where the key's information is, and how.

It is what the demo ends with.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair
import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter
from pandas import DataFrame

from mecheval.report import labels
from mecheval.report.figure import GREY, Figure, TablePart, panes
from mecheval.report.study import Study
from mecheval.report.tables import choice
from mecheval.report.vega import INK_OF_PAGE, Chart, colour, ink, seed_dots, shade, shares
from mecheval.report.verdicts import ROLES, verdicts

MECHANISMS = {
    "induction": "#009E73",
    "association at next_key": "#0072B2",
    "direct retrieval": "#D55E00",
    "mixed": "#8C6BB1",
    "unsolved": "#8C8C8C",
    "": "#8C8C8C",
}
NOTE = "Middle: the key is corrupted, and the clean input of the last layer put back at one token."
ONE = "Shown is the share of the lost likelihood that this restores."
SEVERAL = "Shown is in how many seeds this restores at least half of the lost likelihood."
CHANCE = "Dotted: the best accuracy without recall."
WORDS = 92  # characters of a line of the explanation
HATCHED: dict[str, Any] = {"facecolor": "#f4f4f4", "edgecolor": "#a8a8a8", "hatch": "//////"}
DOTS: dict[str, Any] = {"s": 9, "color": labels.INK, "linewidths": 0.4, "edgecolors": "white"}


def demo(study: Study, first: str | None = None) -> Figure:
    """Draw the verdicts; the architecture `first` comes before the others on each task."""
    table = verdicts(study)
    if first is not None:
        place = (table["model.architecture"] != first).astype(int)
        by = ["task", "model.layers", "place"]
        table = table.assign(place=place).sort_values(by, kind="stable").drop(columns="place")
    fields = ("task", "model.d_model", "model.layers", "setting")
    varied = [name for name in fields if table[name].nunique() > 1]
    table["label"] = [_label(line, varied) for line in table.to_dict("records")]
    tasks = study.field("task")
    title = "How each architecture recalls"
    title += f": {labels.task(tasks[0])}" if len(tasks) == 1 else ""
    note = f"{NOTE} {SEVERAL if table['judged'].max() > 1 else ONE} {CHANCE}"
    return Figure.of(study, "demo", title, [Verdicts("", table)], note, choice(study))


def _label(line: dict[str, Any], varied: Sequence[str]) -> str:
    """Return the architecture and the fields in which the lines differ."""
    texts = {"task": labels.task(line["task"]), "setting": line["setting"]}
    texts |= {"model.d_model": f"d={line['model.d_model']}"}
    texts |= {"model.layers": f"{line['model.layers']} layers"}
    return ", ".join([line["shown"], *(texts[name] for name in varied if texts[name])])


@dataclass(frozen=True)
class Verdicts(TablePart):
    """The table of `verdicts`, with a label for each line."""

    def size(self) -> tuple[float, float]:
        return 10.4 + self.label_width(), 0.7 + 0.52 * len(self.table)

    def draw(self, figure: SubFigure) -> None:
        lines = self.table.to_dict("records")
        room: Any = {"left": self.label_width(), "gap": (0.3, 0.0), "sharey": True}
        axes = panes(figure, 1, 3, **room, gridspec_kw={"width_ratios": [2.2, 2.5, 4.4]})[0]
        bars, cells, words = axes
        for axis in axes:
            axis.set_ylim(len(lines) - 0.5, -0.5)
            axis.tick_params(length=0)
        bars.set_yticks(range(len(lines)), [line["label"] for line in lines], fontsize=9.5)
        for y, line in enumerate(lines):
            _bar(bars, y, line)
            for x, role in enumerate(ROLES):
                _share(cells, x, y, *_cell(line, role))
            _words(words, y, line)
        bars.set(xlim=(0, 1.0), title="accuracy on test")
        bars.xaxis.set_major_formatter(PercentFormatter(1.0))
        bars.grid(axis="y", visible=False)
        cells.set(xlim=(-0.5, len(ROLES) - 0.5), title="restored by the clean token")
        cells.set_xticks(range(len(ROLES)), [role.replace("_", " ") for role in ROLES])
        words.set(xlim=(0, 1), title="mechanism", xticks=[])
        for axis in (cells, words):
            axis.grid(False)
            axis.spines[:].set_visible(False)

    def chart(self) -> Chart:
        lines = self.table.to_dict("records")
        table = self.table.assign(sure=[_agreement(line) for line in lines])
        texts = ("label", "heading", "sure", "meaning", "where", "without_recall")
        tips = [altair.Tooltip(f"{name}:N") for name in texts]
        numbers = ("value", "low", "high", *(f"at_{role}" for role in ROLES))
        tips += [altair.Tooltip(f"{name}:Q", format=".1%") for name in numbers]
        order: Any = {"scale": altair.Scale(domain=list(table["label"])), "title": None}
        mechanism = colour(MECHANISMS, "mechanism", legend=None)
        base = altair.Chart(table).encode(y=altair.Y("label:N", **order), tooltip=tips)
        x = altair.X("value:Q", title="accuracy on test", **shares())
        bars = base.mark_bar(height=16).encode(x=x, color=mechanism)
        bars += base.mark_rule().encode(x="low:Q", x2="high:Q")
        bars += base.mark_tick(thickness=1.5, size=24).encode(x="chance:Q")
        bars += seed_dots(base, "seed_values", color=INK_OF_PAGE).encode(x="seed_values:Q")
        beside = altair.Y("label:N", axis=None, **order)
        cells = self._cells().encode(y=beside)
        words = base.mark_text(align="left", fontWeight="bold", fontSize=12)
        words = words.encode(y=beside, text="mechanism:N", color=mechanism, x=altair.value(4))
        height = altair.Step(30)
        return altair.hconcat(
            bars.properties(width=260, height=height),
            cells.properties(width=300, height=height),
            words.properties(width=200, height=height, title="mechanism"),
        ).resolve_scale(color="independent")

    def _cells(self) -> Chart:
        rows = []
        for line in self.table.to_dict("records"):
            for role in ROLES:
                share, text = _cell(line, role)
                token = role.replace("_", " ")
                rows.append({"label": line["label"], "token": token, "share": share, "text": text})
        tokens = [role.replace("_", " ") for role in ROLES]
        flat: Any = {"title": "restored by the clean token", "axis": altair.Axis(labelAngle=0)}
        base = altair.Chart(DataFrame(rows)).transform_filter("isValid(datum.share)")
        base = base.encode(x=altair.X("token:N", sort=tokens, **flat))
        cells = base.mark_rect(stroke="white").encode(color=shade("share"))
        return cells + base.mark_text().encode(text="text:N", color=ink("share"))


def _cell(line: dict[str, Any], role: str) -> tuple[float, str]:
    """Return the shade and the text of a cell: a share of one seed, or a count of several."""
    holds, seeds, share = (line[f"{name}_{role}"] for name in ("holds", "seeds", "at"))
    if seeds > 1:
        return holds / seeds, f"{holds:.0f} of {seeds:.0f}"
    return share, f"{round(100 * share)}%".replace("-", "−") if share == share else "–"


def _agreement(line: dict[str, Any]) -> str:
    """Return the interval of the proportion of seeds that agree; nothing for one seed."""
    if line["judged"] < 2:
        return ""
    return f"[{100 * line['agree_low']:.0f} %, {100 * line['agree_high']:.0f} %]"


def _bar(axis: Axes, y: int, line: dict[str, Any]) -> None:
    axis.vlines(line["chance"], y - 0.42, y + 0.42, color=labels.INK, linewidth=0.8, linestyle=":")
    if line["state"] != "measured":
        axis.add_patch(Rectangle((0, y - 0.3), 1, 0.6, linewidth=0, **HATCHED))
        look: Any = {"ha": "center", "va": "center", "fontsize": 7.5, "color": GREY}
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        axis.text(0.5, y, line["state"], bbox=box, **look)
        return
    axis.barh(y, line["value"], height=0.6, color=MECHANISMS.get(line["mechanism"], GREY))
    axis.hlines(y, line["low"], line["high"], color=labels.INK, linewidth=1)
    if line["seeds"] > 1:
        values = line["seed_values"]
        axis.scatter(values, [y + 0.16] * len(values), zorder=3, **DOTS)
    inside = line["high"] > 0.75
    at, ink = (0.02, "white") if inside else (line["high"] + 0.02, labels.INK)
    axis.text(at, y, f"{line['value']:.1%}", va="center", fontsize=8, color=ink)


def _share(axis: Axes, x: int, y: int, share: float, text: str) -> None:
    known = share == share
    face = mpl.colormaps["YlGnBu"](min(max(share, 0.0), 1.0)) if known else "#f4f4f4"
    look: Any = {"facecolor": face, "edgecolor": "white", "linewidth": 1.5}
    axis.add_patch(Rectangle((x - 0.5, y - 0.42), 1, 0.84, **look))
    ink = ("white" if share > 0.55 else labels.INK) if known else GREY
    axis.text(x, y, text, ha="center", va="center", fontsize=8.5, color=ink)


def _words(axis: Axes, y: int, line: dict[str, Any]) -> None:
    name, ink = line["heading"] or "no verdict", MECHANISMS.get(line["mechanism"], GREY)
    axis.text(0.02, y - 0.22, name, va="center", fontsize=8.5, weight="bold", color=ink)
    small: Any = {"va": "center", "color": GREY}
    axis.text(1.0, y - 0.22, _agreement(line), ha="right", fontsize=7, **small)
    meaning = "\n".join(textwrap.wrap(line["meaning"], WORDS))
    axis.text(0.02, y + 0.18, meaning, fontsize=6.6, linespacing=1.1, **small)
