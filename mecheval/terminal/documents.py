"""Draw documents and their trees in a terminal, with a letter and a colour for each role."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group
from rich.padding import Padding
from rich.text import Text
from rich.tree import Tree

from mecheval.tasks.sample import Record

LETTERS = {"bos": "B", "key": "K", "value": "V", "next_key": "N", "divider": "D", "query": "Q"}
COLOURS = {"bos": "dim", "divider": "dim", "next_key": "yellow"}
COLOURS |= {"key": "bold cyan", "value": "bold green", "query": "bold magenta"}
SAME = "·"  # stands for a token that the corruption left unchanged
INDENT = 12  # columns before the first token


def legend(roles: Iterable[str] = tuple(LETTERS)) -> Text:
    """Return the letter and the colour of each role."""
    return Text("  ").join(Text(f"{letter(role)} {role}", colour(role)) for role in roles)


def letter(role: str) -> str:
    """Return a capital for a role that every task has, the initials of any other."""
    return LETTERS.get(role) or "".join(word[0] for word in role.split("_"))


def colour(role: str) -> str:
    return COLOURS.get(role, "cyan")


def document(record: Record, width: int) -> Group:
    """Draw tokens over role letters over corrupted tokens, folded to the width; then the tree."""
    twin = record.corrupted
    note = ""
    if not twin.usable:
        note = ", not usable: the answer survived" if twin.answer else ", not usable"
    answer = (record.answer or "none", "bold green")
    heading = Text.assemble("→ ", answer, "; corrupted → ", twin.answer or "none", note)
    lines = list(_folded_lines(record, width))
    if record.parents:
        lines.append(Padding(_tree(record, record.parents), (0, 0, 0, 2), expand=False))
    return Group(heading, *lines)


def lettered(record: Record) -> list[str]:
    """Return for each token the letters of its roles."""
    letters = [""] * len(record.tokens)
    for role, position in record.roles.items():
        letters[position] += letter(role)
    return letters


def coloured(record: Record) -> dict[int, str]:
    """Return the style of each token that has a role."""
    common = {position: role for role, position in record.roles.items() if role in COLOURS}
    own = {position: role for role, position in record.roles.items()}
    return {position: colour(role) for position, role in {**own, **common}.items()}


def folds(columns: Sequence[int], width: int) -> Iterator[range]:
    """Yield the columns of each line, at least one, with a space between them."""
    start = 0
    while start < len(columns):
        stop, room = start + 1, width - columns[start]
        while stop < len(columns) and room > columns[stop]:
            room -= columns[stop] + 1
            stop += 1
        yield range(start, stop)
        start = stop


def _folded_lines(record: Record, width: int) -> Iterator[Text | Padding]:
    pairs = zip(record.tokens, record.corrupted.tokens, strict=True)
    changes = [SAME if clean == corrupt else corrupt for clean, corrupt in pairs]
    letters, styles = lettered(record), coloured(record)
    change_styles = {i: "dim" if change == SAME else "bold red" for i, change in enumerate(changes)}
    rows = [("clean", record.tokens, styles), ("role", letters, styles)]
    rows.append(("corrupted", changes, change_styles))
    columns = [max(map(len, cells)) for cells in zip(record.tokens, letters, changes, strict=True)]
    for part in folds(columns, width - INDENT):
        for name, cells, style in rows:
            line = Text(f"  {name:<{INDENT - 2}}")
            for i in part:
                line.append(cells[i].ljust(columns[i]), style.get(i, ""))
                line.append(" ")
            line.rstrip()
            yield line


def _tree(record: Record, parents: Sequence[int]) -> Tree:
    roles = {position: role for role, position in record.roles.items() if role in ("key", "value")}
    nodes = {}
    for i in range(1, record.roles["divider"]):
        style = COLOURS.get(roles.get(i, ""), "")
        mark = LETTERS.get(roles.get(i, ""), "")
        label = Text.assemble((record.tokens[i], style), (f" {i} ", "dim"), (mark, style))
        nodes[i] = Tree(label)
    for i, node in nodes.items():
        if parents[i] >= 0:
            nodes[parents[i]].children.append(node)
    return next(node for i, node in nodes.items() if parents[i] < 0)
