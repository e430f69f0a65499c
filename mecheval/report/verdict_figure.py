"""The verdict of each architecture as a picture: how well it recalls, where the key's information is, and what that is
called. It is what the demo ends in."""

from dataclasses import dataclass
from typing import Any

import altair
import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter
from pandas import DataFrame

from mecheval.report import labels as names
from mecheval.report.figure import GREY, Sheet, panes
from mecheval.report.study import Study
from mecheval.report.tables import choice
from mecheval.report.vega import Chart, colour, ink, shade, shares
from mecheval.report.verdicts import ROLES, verdicts

PLAIN = altair.Axis(labelAngle=0, labelExpr="replace(replace(datum.label, 'at_', ''), '_', ' ')")
AT = tuple(f"at_{role}" for role in ROLES)
MECHANISMS = {"induction": "#009E73", "association at next_key": "#0072B2", "direct retrieval": "#D55E00"}
MECHANISMS |= {"mixed": "#8C6BB1", "unsolved": "#8C8C8C", "": "#8C8C8C"}


def demo(study: Study) -> Sheet:
    table = verdicts(study)
    varied = [name for name in ("task", "model.d_model", "model.layers", "setting") if table[name].nunique() > 1]
    label = [", ".join([line["shown"], *_varied(line, varied)]) for line in table.to_dict("records")]
    note = (
        "Middle: the key is corrupted, then the clean input of the last layer is put back at one token; shown is the "
        "share of the lost likelihood that this restores."
    )
    tasks = study.field("task")
    title = (
        f"How each architecture recalls: {names.task(tasks[0])}" if len(tasks) == 1 else "How each architecture recalls"
    )
    return Sheet.of(study, "demo", title, [Verdicts("", table.assign(label=label))], note, choice(study))


def _varied(line: dict[str, Any], varied: list[str]) -> list[str]:
    said = {"task": line["task"], "setting": line["setting"]}
    said |= {"model.d_model": f"d={line['model.d_model']}", "model.layers": f"{line['model.layers']} layers"}
    return [said[name] for name in varied if said[name]]


@dataclass(frozen=True)
class Verdicts:
    """The table of `verdicts`, with a label for each line."""

    title: str
    table: DataFrame

    def size(self) -> tuple[float, float]:
        return 9.6 + self._left(), 0.7 + 0.46 * len(self.table)

    def _left(self) -> float:
        return 0.2 + 0.085 * max(map(len, self.table["label"]))

    def draw(self, figure: SubFigure) -> None:
        lines = self.table.to_dict("records")
        grid = {"width_ratios": [2.3, 2.6, 3.6]}
        bars, cells, words = panes(figure, 1, 3, left=self._left(), gap=(0.3, 0.0), sharey=True, gridspec_kw=grid)[0]
        for axis in (bars, cells, words):
            axis.set_ylim(len(lines) - 0.5, -0.5)
            axis.tick_params(length=0)
        bars.set_yticks(range(len(lines)), [line["label"] for line in lines], fontsize=9.5)
        for y, line in enumerate(lines):
            _bar(bars, y, line)
            for x, role in enumerate(ROLES):
                _share(cells, x, y, line[f"at_{role}"])
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
        order, height = list(self.table["label"]), altair.Step(30)
        tips = [altair.Tooltip(f"{name}:N") for name in ("label", "mechanism", "meaning", "where")]
        numbers = [altair.Tooltip(f"{name}:Q", format=".1%") for name in ("value", "low", "high", "confidence", *AT)]
        mechanism = colour(MECHANISMS, "mechanism", legend=None)
        base = altair.Chart(self.table).encode(
            y=altair.Y("label:N", scale=altair.Scale(domain=order), title=None), tooltip=[*tips, *numbers]
        )
        x = altair.X("value:Q", title="accuracy on test", **shares())
        bars = base.mark_bar(height=16).encode(x=x, color=mechanism) + base.mark_rule().encode(x="low:Q", x2="high:Q")
        beside = altair.Y("label:N", scale=altair.Scale(domain=order), title=None, axis=None)
        token = altair.X("token:N", sort=list(ROLES), title="restored by the clean token", axis=PLAIN)
        folded = altair.Chart(self.table).transform_fold(list(AT), as_=["token", "share"]).encode(y=beside, x=token)
        folded = folded.transform_filter("isValid(datum.share)")
        cells = folded.mark_rect(stroke="white").encode(color=shade("share"))
        cells += folded.mark_text().encode(text=altair.Text("share:Q", format=".0%"), color=ink("share"))
        words = base.mark_text(align="left", fontWeight="bold", fontSize=12)
        words = words.encode(y=beside, text="mechanism:N", color=mechanism, x=altair.value(4))
        return altair.hconcat(
            bars.properties(width=260, height=height),
            cells.properties(width=300, height=height),
            words.properties(width=200, height=height, title="mechanism"),
        ).resolve_scale(color="independent")


def _bar(axis: Axes, y: int, line: dict[str, Any]) -> None:
    if line["value"] != line["value"]:
        axis.add_patch(
            Rectangle((0, y - 0.3), 1, 0.6, facecolor="#f4f4f4", edgecolor="#a8a8a8", hatch="//////", linewidth=0)
        )
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        axis.text(0.5, y, line["state"], ha="center", va="center", fontsize=7.5, color=GREY, bbox=box)
        return
    axis.barh(y, line["value"], height=0.6, color=MECHANISMS.get(line["mechanism"], GREY))
    axis.hlines(y, line["low"], line["high"], color=names.INK, linewidth=1)
    inside = line["high"] > 0.75
    at, side, ink = (0.02, "left", "white") if inside else (line["high"] + 0.02, "left", names.INK)
    axis.text(at, y, f"{line['value']:.1%}", ha=side, va="center", fontsize=8, color=ink)


def _share(axis: Axes, x: int, y: int, share: float) -> None:
    known = share == share
    colour = mpl.colormaps["YlGnBu"](min(max(share, 0.0), 1.0)) if known else "#f4f4f4"
    axis.add_patch(Rectangle((x - 0.5, y - 0.42), 1, 0.84, facecolor=colour, edgecolor="white", linewidth=1.5))
    ink = "white" if known and share > 0.55 else names.INK if known else GREY
    axis.text(
        x,
        y,
        f"{round(100 * share)}%".replace("-", "−") if known else "–",
        ha="center",
        va="center",
        fontsize=8.5,
        color=ink,
    )


def _words(axis: Axes, y: int, line: dict[str, Any]) -> None:
    name = line["mechanism"] or "no verdict"
    sure = f"  {line['confidence']:.0%} sure" if line["mechanism"] else ""
    seeds = f", {line['agree']} of {line['judged']} seeds" if line["judged"] > 1 else ""
    axis.text(
        0.02, y - 0.14, name, va="center", fontsize=9, weight="bold", color=MECHANISMS.get(line["mechanism"], GREY)
    )
    axis.text(1.0, y - 0.14, sure + seeds, va="center", ha="right", fontsize=7, color=GREY)
    axis.text(0.02, y + 0.19, line["meaning"], va="center", fontsize=6.6, color=GREY)
