"""Small HTML for notebooks, and a line of progress that updates in place.

Colours are the page's own or a fixed pair of ink and paper, so that everything is readable on light
and on dark pages.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib import import_module
from typing import Any

WIDEST = 200  # characters of a repr
CELL = "padding: .2em .6em; text-align: left; vertical-align: top; background: none"


def short(text: str, width: int = WIDEST) -> str:
    """Return a text in one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def html_table(
    title: str, header: Sequence[str], lines: Iterable[Sequence[object]], note: str = ""
) -> str:
    """Return a table; every text is escaped. A cell may be a pair of a text and a style."""
    parts = ['<div style="overflow-x: auto; font-size: 90%">']
    parts.append(f"<div><b>{escape(title)}</b></div><table>")
    if header:
        cells = "".join(f'<th style="{CELL}">{escape(name)}</th>' for name in header)
        parts.append(f"<tr>{cells}</tr>")
    parts += [f"<tr>{''.join(map(_cell, line))}</tr>" for line in lines]
    parts.append("</table>")
    parts.append(f'<div style="opacity: .75">{escape(note)}</div></div>' if note else "</div>")
    return "".join(parts)


def chip(text: str, paper: str) -> tuple[str, str]:
    """Return a cell with dark ink on a coloured paper, for `html_table`."""
    return text, f"background: {paper}; color: #111"


def _cell(cell: object) -> str:
    text, style = cell if isinstance(cell, tuple) else (cell, "")
    return f'<td style="{CELL}; {style}">{escape(str(text)).replace(chr(10), "<br>")}</td>'


def notebook_shell() -> Any | None:
    """Return IPython's shell if this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell if shell is not None and hasattr(shell, "kernel") else None


def status_line(wanted: bool | None) -> Callable[[str], None] | None:
    """Return a function that shows a line in place of the one before; None to show nothing.

    Unless it is `wanted` or not, a notebook shows it and nothing else does. Outside a notebook it
    goes to stderr, if that is a terminal.
    """
    shell = notebook_shell()
    if wanted is False or (wanted is None and shell is None):
        return None
    if shell is not None:
        return _NotebookLine().show
    return _show_in_terminal if sys.stderr.isatty() else None


class _NotebookLine:
    """One output of a cell, whose text changes."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, text: str) -> None:
        ipython: Any = import_module("IPython.display")
        line = ipython.HTML(f'<code style="background: none; color: inherit">{escape(text)}</code>')
        if self._handle is None:
            self._handle = ipython.display(line, display_id=True)
        else:
            self._handle.update(line)


def _show_in_terminal(text: str) -> None:
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()


def bar(done: int | float, total: int | float, width: int = 24) -> str:
    """Return a bar as text."""
    filled = round(width * min(max(done / total if total else 1.0, 0.0), 1.0))
    return "█" * filled + "░" * (width - filled)


def clock(seconds: int | float) -> str:
    """Format a duration as h:mm:ss."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
