"""Grids in a terminal: a progress bar, a table of sites by roles, a heat map of one document."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from mecheval.tasks.sample import Record
from mecheval.terminal.documents import coloured, folds, lettered
from mecheval.terminal.live import REFRESH_SECONDS
from mecheval.terminal.tables import NUMBERS, with_interval

Row = Mapping[str, Any]
NONE = "–"
EXPLAINED = {
    "likelihood": " of the right answer",
    "counterfactual": ": likelihood of the corrupted document's answer",
}


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar with the time left on stderr, if that is a terminal, and remove it at the end."""
    with stages(title) as show:
        yield lambda done, total: show("", done, total)


@contextmanager
def stages(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar for work in several stages, each with a name and a total of its own."""
    console, refreshed = Console(stderr=True, emoji=False), 0.0
    name = TextColumn("{task.description}", markup=False)
    columns = name, BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    hidden = not console.is_terminal
    bar = Progress(*columns, console=console, auto_refresh=False, transient=True, disable=hidden)

    def update(stage: str, done: int, total: int) -> None:
        nonlocal refreshed
        text = f"{title} · {stage}" if stage else title
        bar.update(line, completed=done, total=total, description=text)
        if time.monotonic() - refreshed > REFRESH_SECONDS:
            refreshed = time.monotonic()
            bar.refresh()

    with bar:
        line = bar.add_task(title, total=None)
        yield update


def grid(rows: Sequence[Row], metric: str) -> Group:
    """Lay out sites by roles, with a star where at least half of the lost likelihood is back."""
    cells, shares = _cells(rows, metric), _cells(rows, "share")
    roles = list(dict.fromkeys(role for _, role in _cells(rows, "likelihood")))
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for role in roles:
        table.add_column(role, justify="right", no_wrap=True)
    for site in _sites(rows):
        places = [(site, role) for role in roles]
        table.add_row(site, *(_cell(metric, cells.get(at), shares.get(at)) for at in places))
    return Group(table, _caption(rows, metric))


def heat_map(record: Record, rows: Sequence[Row], metric: str, width: int) -> Group:
    """Lay out sites by positions, folded to the width; the more is back, the greener the cell."""
    cells, shares = _cells(rows, metric), _cells(rows, "share")
    style, twin = coloured(record), record.corrupted
    changes = ["" if a == b else b for a, b in zip(record.tokens, twin.tokens, strict=True)]
    lines = [
        ("", [Text(token, style.get(i, "")) for i, token in enumerate(record.tokens)]),
        ("", [Text(letters, style.get(i, "")) for i, letters in enumerate(lettered(record))]),
        ("corrupted", [Text(change, "bold red") for change in changes]),
    ]
    for site in _sites(rows):
        places = [(site, f"@{i}") for i in range(len(record.tokens))]
        line = [_cell(metric, cells.get(at), shares.get(at), decimals=0) for at in places]
        lines.append((site, line))
    columns = [max(map(len, column)) for column in zip(*(line for _, line in lines), strict=True)]
    indent = max(len(name) for name, _ in lines)
    parts = [
        Text(f"document {record.index} → {record.answer}; corrupted → {twin.answer or 'none'}")
    ]
    for fold in folds(columns, width - indent - 2):
        for name, line in lines:
            if any(line[i] for i in fold):
                padded = [Text(" " * (columns[i] - len(line[i]))) + line[i] for i in fold]
                text = Text(name.ljust(indent + 2)).append_text(Text(" ").join(padded))
                text.rstrip()
                parts.append(text)
        parts.append(Text())
    return Group(*parts, _caption(rows, metric))


def _cells(rows: Sequence[Row], metric: str) -> dict[tuple[str, str], Row]:
    matching = [row for row in rows if row["metric"] == metric and row["site"]]
    return {(row["site"], row["role"]): row for row in matching}


def _sites(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["site"] for row in rows if row["site"]))


def _cell(metric: str, row: Row | None, share: Row | None, decimals: int = 1) -> Text:
    """Format a number, with the share as a star and a shade."""
    if not row or not row["n"]:
        return Text(f"{NONE} ")
    back = share["value"] if share else 0.0
    number = _number(metric, row["value"], decimals)
    return Text(f"{number}{'*' if back >= 0.5 else ' '}", _shade(back))


def _number(metric: str, value: float, decimals: int = 1) -> str:
    return f"{value:.{decimals + 1}f}" if metric in NUMBERS else f"{value:.{decimals}%}"


def _shade(share: float) -> str:
    """Return a style from none to full green, bold from one half on."""
    part = min(max(share, 0.0), 1.0)
    if part < 0.05:
        return ""
    colour = f"rgb(0,{50 + round(80 * part)},{25 + round(25 * part)})"
    return f"{'bold ' if part >= 0.5 else ''}white on {colour}"


def _caption(rows: Sequence[Row], metric: str) -> str:
    """Explain the numbers, and give the clean and corrupt ones."""
    half = "gone" if any(row["condition"] == "ablated" for row in rows) else "back"
    whole = [row for row in rows if row["metric"] == metric and row["site"] is None]
    if not whole:
        note = f"{NONE}: too little was lost; *: half of it {half}"
        return f"share of the likelihood that was lost; {note}"
    ends = []
    for row in whole:  # one document has no interval
        several = row["n"] > 1
        number = with_interval(metric, row) if several else _number(metric, row["value"])
        ends.append(f"{row['condition']} {number}")
    title = f"{metric}{EXPLAINED.get(metric, '')}"
    return f"{title}: {', '.join(ends)}, n={whole[0]['n']}; *: half of the likelihood {half}"
