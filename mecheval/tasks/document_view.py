"""Documents as tables of tokens with coloured roles, for notebooks: HTML, frames and figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mecheval.core.notebook import chip, html_table
from mecheval.tasks.documents import NO_ANSWER, SPECIALS, Documents

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from mecheval.tasks.sample import Record

PAPERS = {"bos": "#d9d9d9", "divider": "#d9d9d9", "next_key": "#ffe08a"}
PAPERS |= {"key": "#9fd8ef", "value": "#b4e3a8", "query": "#f0b6dd"}
SHOWN, WIDE = 8, 64  # documents and tokens that are shown at most
LEGEND = "key blue · value green · next_key yellow · query pink"
Word = Callable[[int], str]


@dataclass(frozen=True)
class Line:
    """A document to show: a role's name by the position of its token."""

    index: int
    words: Sequence[str]
    roles: Mapping[int, str]
    answer: str
    twin: bool = False

    @property
    def label(self) -> str:
        return f"{self.index} corrupted" if self.twin else str(self.index)


def word_of(token: int) -> str:
    """Return a token's id as text; a task's own `word` also tells keys from values."""
    return SPECIALS.get(token, str(token))


def lines_of(docs: Documents, word: Word | None, count: int) -> list[Line]:
    """Return the first documents of a block as lines to show."""
    word, lines = word or word_of, []
    for i in range(min(len(docs), count)):
        ids = docs.tokens[i, : docs.lengths[i]].tolist()
        answer = int(docs.answer[i])
        said = "none" if answer == NO_ANSWER else word(answer)
        at = {role: int(position[i]) for role, position in docs.roles.items()}
        lines.append(Line(int(docs.index[i]), [word(token) for token in ids], _by_place(at), said))
    return lines


def record_lines(records: Sequence["Record"]) -> list[Line]:
    """Return each document of a sample and, below it, its corrupted twin."""
    lines = []
    for record in records:
        for one, twin in ((record, False), (record.corrupted, True)):
            answer, roles = one.answer or "none", _by_place(one.roles)
            lines.append(Line(record.index, one.tokens, roles, answer, twin))
    return lines


def documents_html(title: str, lines: Sequence[Line]) -> str:
    """Return a table with a document in each line."""
    rows = []
    for line in lines:
        cells: list[object] = [line.label]
        for place, text in enumerate(line.words[:WIDE]):
            role = line.roles.get(place)
            cells.append(chip(text, PAPERS[role]) if role in PAPERS else text)
        rows.append([*cells, "…" if len(line.words) > WIDE else "", f"→ {line.answer}"])
    return html_table(title, (), rows, LEGEND)


def documents_frame(lines: Sequence[Line]) -> "DataFrame":
    """Return one row for each token: document, position, token, role and the right answer."""
    from pandas import DataFrame

    rows: list[dict[str, Any]] = []
    for line in lines:
        for place, text in enumerate(line.words):
            role = line.roles.get(place)
            row = {"document": line.index, "position": place, "token": text, "role": role}
            rows.append({**row, "answer": line.answer})
    return DataFrame(rows, columns=["document", "position", "token", "role", "answer"])


def documents_figure(title: str, lines: Sequence[Line]) -> "Figure":
    """Draw a document in each line, its tokens in boxes with the colours of their roles."""
    from matplotlib.patches import Rectangle

    from mecheval.core.plots import INK, canvas, styled

    wide = min(max((len(line.words) for line in lines), default=1), WIDE)
    with styled():
        figure, axes = canvas(1.2 + 0.42 * wide, 0.7 + 0.34 * len(lines))
        axes.set(xlim=(0, wide + 2), ylim=(len(lines), 0), xticks=[])
        axes.set_title(f"{title}\n{LEGEND}", fontsize=9, loc="left", color=INK)
        axes.set_yticks([y + 0.5 for y in range(len(lines))], [line.label for line in lines])
        axes.grid(False)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        for y, line in enumerate(lines):
            for x, text in enumerate(line.words[:wide]):
                paper = PAPERS.get(line.roles.get(x, ""), "#f7f7f7")
                look: Any = {"facecolor": paper, "edgecolor": "white", "linewidth": 1.5}
                axes.add_patch(Rectangle((x, y + 0.08), 1, 0.84, **look))
                axes.text(x + 0.5, y + 0.5, text, fontsize=7, color=INK, ha="center", va="center")
            end = min(len(line.words), wide)
            axes.text(end + 0.2, y + 0.5, f"→ {line.answer}", fontsize=8, color=INK, va="center")
        return figure


def _by_place(roles: Mapping[str, int]) -> dict[int, str]:
    """Return the role of each position; where two roles are one token, the more telling one."""
    telling = ("bos", "divider", "next_key", "query", "value", "key")
    others = [role for role in roles if role not in telling]
    return {roles[role]: role for role in (*others, *telling) if role in roles}
