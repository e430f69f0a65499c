"""How interventions look in a terminal: the bar while they are made, sites by roles, one document token by token."""

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

Rows = Sequence[Mapping[str, Any]]
NONE = "–"


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with the time left on stderr, gone at the end; nothing where stderr is no terminal."""
    console, shown = Console(stderr=True), 0.0
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    bar = Progress(*columns, console=console, auto_refresh=False, transient=True, disable=not console.is_terminal)

    def told(done: int, total: int) -> None:
        nonlocal shown
        bar.update(line, completed=done, total=total)
        if time.monotonic() - shown > REFRESH_SECONDS:
            shown = time.monotonic()
            bar.refresh()

    with bar:
        line = bar.add_task(what, total=None)
        yield told


def grid(rows: Rows, metric: str) -> Group:
    """Sites by roles, starred where at least half of the likelihood that was lost is back."""
    cells, shares = _cells(rows, metric), _cells(rows, "share")
    roles = list(dict.fromkeys(role for _, role in _cells(rows, "likelihood")))
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for role in roles:
        table.add_column(role, justify="right", no_wrap=True)
    for site in _sites(rows):
        places = [(site, role) for role in roles]
        table.add_row(site, *(_cell(metric, cells.get(place), shares.get(place)) for place in places))
    return Group(table, _ends(rows, metric))


def heat_map(record: Record, rows: Rows, metric: str, width: int) -> Group:
    """Sites by positions, folded to the width, under the tokens and their roles; the more is back, the greener."""
    cells, shares, style, twin = _cells(rows, metric), _cells(rows, "share"), coloured(record), record.corrupted
    changes = ["" if a == b else b for a, b in zip(record.tokens, twin.tokens, strict=True)]
    lines = [
        ("", [Text(token, style.get(i, "")) for i, token in enumerate(record.tokens)]),
        ("", [Text(letters, style.get(i, "")) for i, letters in enumerate(lettered(record))]),
        ("corrupted", [Text(change, "bold red") for change in changes]),
    ]
    for site in _sites(rows):
        places = [(site, f"@{i}") for i in range(len(record.tokens))]
        lines.append((site, [_cell(metric, cells.get(place), shares.get(place), decimals=0) for place in places]))
    columns = [max(map(len, column)) for column in zip(*(line for _, line in lines), strict=True)]
    indent = max(len(name) for name, _ in lines)
    parts = [Text(f"document {record.index} → {record.answer}; corrupted → {twin.answer or 'none'}")]
    for here in folds(columns, width - indent - 2):
        shown = [
            (name, [_right(line[i], columns[i]) for i in here]) for name, line in lines if any(line[i] for i in here)
        ]
        parts += [_line(name.ljust(indent + 2), line) for name, line in shown]
        parts.append(Text())
    return Group(*parts, _ends(rows, metric))


def _cells(rows: Rows, metric: str) -> dict[tuple[str, str], Mapping[str, Any]]:
    return {(row["site"], row["role"]): row for row in rows if row["metric"] == metric and row["site"]}


def _sites(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["site"] for row in rows if row["site"]))


def _cell(metric: str, row: Mapping[str, Any] | None, share: Mapping[str, Any] | None, decimals: int = 1) -> Text:
    """A number, with the share as a star and a shade."""
    if not row or not row["n"]:
        return Text(f"{NONE} ")
    back = share["value"] if share else 0.0
    text = f"{row['value']:.{decimals + 1}f}" if metric in NUMBERS else f"{row['value']:.{decimals}%}"
    return Text(f"{text}{'*' if back >= 0.5 else ' '}", _shade(back))


def _shade(share: float) -> str:
    """From nothing to a full green; half and more is bold."""
    part = min(max(share, 0.0), 1.0)
    if part < 0.05:
        return ""
    return f"{'bold ' if part >= 0.5 else ''}white on rgb(0,{50 + round(80 * part)},{25 + round(25 * part)})"


def _ends(rows: Rows, metric: str) -> str:
    """What the numbers are, and the same clean and corrupt."""
    half = "gone" if any(row["condition"] == "ablated" for row in rows) else "back"
    ends = {row["condition"]: row for row in rows if row["metric"] == metric and row["site"] is None}
    if not ends:
        return f"share of the likelihood that was lost; {NONE}: too little was lost; *: half of it {half}"
    said = ", ".join(f"{name} {_end(metric, ends[name])}" for name in ("clean", "corrupt"))
    of = {"likelihood": " of the right answer", "counterfactual": ": likelihood of the corrupted document's answer"}
    return f"{metric}{of.get(metric, '')}: {said}, n={ends['clean']['n']}; *: half of the likelihood {half}"


def _end(metric: str, row: Mapping[str, Any]) -> str:
    """One document has no interval."""
    if row["n"] > 1:
        return with_interval(metric, row)
    return f"{row['value']:.2f}" if metric in NUMBERS else f"{row['value']:.1%}"


def _line(name: str, cells: Sequence[Text]) -> Text:
    line = Text(name).append_text(Text(" ").join(cells))
    line.rstrip()
    return line


def _right(cell: Text, width: int) -> Text:
    return Text(" " * (width - len(cell))) + cell
