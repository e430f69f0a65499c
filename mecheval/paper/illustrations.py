"""Figures 1 and 2: the mechanisms in summary, and an interchange intervention, token by token.

pyproject.toml registers every function whose name is a figure's.
"""

from dataclasses import dataclass, replace
from typing import Any

import altair
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.patches import Rectangle
from pandas import DataFrame

from mecheval.core.spec import Spec
from mecheval.paper.figures import ENDS, restored
from mecheval.report import labels as names
from mecheval.report.evidence import LAYER_1
from mecheval.report.figure import GREY, Figure, panes
from mecheval.report.labels import INK, ROLES
from mecheval.report.study import Study
from mecheval.report.tables import choice, read
from mecheval.report.vega import Chart
from mecheval.report.verdict_figure import Verdicts, demo

TOKENS = ("A", "2", "C", "3", "F", "9", "D", "1", "|", "C")  # the paper's example, with a divider
KEY, VALUE, QUERY, OTHER_KEY = 2, 3, len(TOKENS) - 1, "E"
PLACES = {KEY: "key", VALUE: "value", QUERY: "query"}
WRONG, PLAIN = "#b3261e", "#e6e6e6"


def figure1(study: Study) -> Figure:
    """Draw how Attention, Based and Mamba, with and without convolution, solve both tasks."""
    summary = demo(study)
    (part,) = summary.parts
    tasks = [names.task(Spec.parse(text).name) for text in part.table["task"]]
    labels = [f"{task}: {shown}" for task, shown in zip(tasks, part.table["shown"], strict=True)]
    title = "Associative mechanisms in Attention, Based and Mamba"
    table = part.table.assign(label=labels)
    return replace(summary, name="figure1", title=title, parts=[Verdicts("", table)])


def figure2(study: Study) -> Figure:
    """Draw a document, the same with a corrupted key, and what restoring one token gives back."""
    roles = ("key", "value", "query")
    readings = [*ENDS, *(restored(f"Restored @ {r.title()}", LAYER_1, r) for r in roles)]
    part = Intervention("", read(study, readings))
    note = "The document is an example; the likelihoods are of the test documents, at the query. "
    note += f"Restored: the clean input of layer 1 ({LAYER_1}) put back at the framed token."
    title = "An interchange intervention: Attention on associative recall"
    return Figure.of(study, "figure2", title, [part], note, choice(study))


@dataclass(frozen=True)
class Intervention:
    """A row of tokens for each reading, with the likelihood of the right answer beside it."""

    shows_seeds = False

    title: str
    table: DataFrame

    def size(self) -> tuple[float, float]:
        return 9.2, 0.7 + 0.5 * len(self.table)

    def draw(self, figure: SubFigure) -> None:
        axis = panes(figure, 1, 1, left=1.5)[0, 0]
        lines = self.table.to_dict("records")
        axis.set(xlim=(-0.5, len(TOKENS) + 4), ylim=(len(lines) - 0.5, -0.6), xticks=[])
        axis.set_yticks(range(len(lines)), [line["panel"] for line in lines])
        axis.tick_params(length=0)
        axis.grid(False)
        axis.spines[:].set_visible(False)
        for y, line in enumerate(lines):
            for token in _tokens(line):
                _box(axis, y, token)
            axis.text(len(TOKENS) - 0.3, y, f"→ 3: {_likelihood(line)}", va="center", color=INK)
        for x, role in PLACES.items():
            axis.text(x, -0.58, role, ha="center", va="bottom", fontsize=8, color=GREY)

    def chart(self) -> Chart:
        lines = self.table.to_dict("records")
        boxes = [{"row": line["panel"], **token} for line in lines for token in _tokens(line)]
        rows: Any = {"sort": [line["panel"] for line in lines], "title": None}
        base = altair.Chart(DataFrame(boxes)).encode(
            x=altair.X("place:O", axis=None),
            y=altair.Y("row:N", **rows),
            tooltip=["row:N", "token:N", "role:N", "likelihood:N"],
        )
        frame = altair.condition("datum.framed", altair.value(3), altair.value(0))
        tiles = base.mark_rect(stroke=INK).encode(
            color=altair.Color("colour:N", scale=None), strokeWidth=frame
        )
        words = base.mark_text(fontSize=13).encode(
            text="token:N", color=altair.Color("ink:N", scale=None)
        )
        ends = base.transform_filter(f"datum.place == {QUERY}").mark_text(align="left", dx=22)
        return (tiles + words + ends.encode(text="likelihood:N")).properties(
            width=altair.Step(34), height=altair.Step(34)
        )


def _tokens(line: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tokens of a reading: a corrupt key everywhere but in the clean document."""
    corrupt = line["condition"] != "clean"
    tokens = []
    for place, token in enumerate(TOKENS):
        role = PLACES.get(place, "")
        wrong = corrupt and place == KEY
        framed = line["condition"] == "restored" and role == line["role"]
        colours = {"colour": ROLES.get(role, PLAIN), "ink": WRONG if wrong else INK}
        text = OTHER_KEY if wrong else token
        likelihood = f"→ 3: {_likelihood(line)}"
        tokens.append(
            {"place": place, "token": text, "role": role, "framed": framed, **colours}
            | {"likelihood": likelihood}
        )
    return tokens


def _likelihood(line: dict[str, Any]) -> str:
    if line["state"] != "measured":
        return str(line["state"])
    return f"{line['value']:.1%} [{line['low']:.1%}, {line['high']:.1%}]"


def _box(axis: Axes, y: int, token: dict[str, Any]) -> None:
    look: Any = {"facecolor": token["colour"], "edgecolor": INK if token["framed"] else "none"}
    axis.add_patch(Rectangle((token["place"] - 0.42, y - 0.36), 0.84, 0.72, linewidth=2, **look))
    weight = "bold" if token["ink"] == WRONG else "normal"
    place: Any = {"ha": "center", "va": "center", "weight": weight}
    axis.text(token["place"], y, token["token"], color=token["ink"], **place)
