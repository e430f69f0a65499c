"""Show a record as tables, in a terminal and on a Markdown page."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mecheval.core.errors import InvalidInput
from mecheval.runs.files import read_input, write

HEADER = ("what", "against", "ratio", "least–most", "floor", "", "ours", "theirs", "note")
TERMINAL_COLUMNS = 7  # the notes are below the table
NUMBERS = ("ratio", "least–most", "floor", "ours", "theirs")
COLOURS = {"ok": "green", "below": "bold red", "above": "bold red"}
UNITS = {"×": "×", "%": " %", "exponent": "", "s": " s", "apart": ""}
BEGIN, END = "<!-- measured -->", "<!-- end -->"


def cells(line: Mapping[str, Any]) -> tuple[str, ...]:
    unit = UNITS[line["unit"]]
    ends = [line["least"], line["most"]]
    return (
        line["what"],
        line["against"],
        "–" if line["ratio"] is None else number(line["ratio"]) + unit,
        "" if ends[0] == ends[1] else "–".join(map(number, ends)),
        _floor(line["floor"], unit),
        line["verdict"] or "",
        _measurement(line["ours"]),
        _measurement(line["theirs"]),
        line["note"],
    )


def number(value: int | float) -> str:
    """Return three significant digits."""
    if value == 0 or abs(value) < 1e-3:
        return f"{value:.0e}" if value else "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _floor(floor: Mapping[str, Any] | None, unit: str) -> str:
    if floor is None:
        return ""
    return f"{'≥' if floor['sense'] == 'at least' else '≤'} {number(floor['value'])}{unit}"


def _measurement(spreads: Mapping[str, Mapping[str, float]]) -> str:
    """Return the median of the first kind that was measured, CPU before wall time."""
    for name, unit in (("cpu_ms", "ms"), ("wall_ms", "ms"), ("mb", "MB")):
        if name in spreads:
            value = spreads[name]["median"]
            small = unit == "ms" and value < 0.1
            return f"{number(value * 1e3)} µs" if small else f"{number(value)} {unit}"
    return ""


def tables(record: Mapping[str, Any]) -> Group:
    """Return the tables for a terminal of 80 columns."""
    blocks: list[RenderableType] = [Text(machine_sentence(record), "dim")]
    for part, results in record["parts"].items():
        title = Text(f"\n{part}", "bold")
        table = Table(box=None, pad_edge=False, title=title, title_justify="left")
        for name in HEADER[:TERMINAL_COLUMNS]:
            table.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=True)
        for row in map(cells, results["lines"]):
            table.add_row(*(Text(cell, COLOURS.get(cell, "")) for cell in row[:TERMINAL_COLUMNS]))
        blocks += [table, Text(re.sub("[*`]", "", results["caption"]), "dim")]
        for line in results["lines"]:
            if line["note"]:
                blocks.append(Text(f"{line['what']}, {line['against']}: {line['note']}", "dim"))
    return Group(*blocks)


def markdown(record: Mapping[str, Any]) -> str:
    blocks = [machine_sentence(record)]
    alignment = tuple("--:" if name in NUMBERS else "---" for name in HEADER)
    for part, results in record["parts"].items():
        rows = [HEADER, alignment, *map(cells, results["lines"])]
        lines = [f"| {' | '.join(cell.replace('|', '¦') for cell in row)} |" for row in rows]
        blocks += [f"## {part}", results["caption"], "\n".join(lines)]
    return "\n\n".join(blocks)


def machine_sentence(record: Mapping[str, Any]) -> str:
    facts, rounds = record["machine"], record["size"]["rounds"]
    load = "" if facts["load"] is None else f", load {facts['load']:.1f} at the start"
    return (
        f"{facts['processor']}, {facts['cores']} cores, {facts['threads']} thread, "
        f"torch {facts['torch']}, numba {facts['numba']}, Python {facts['python']}; "
        f"denormals {'flushed' if facts['flush_denormal'] else 'kept'}; "
        f"a product of large matrices runs at {facts['gemm_peak_gflops']:.0f} GFLOP/s; "
        f"{rounds} interleaved round{'s' * (rounds > 1)}, medians of CPU time; "
        f"{facts['started'][:10]}{load}."
    )


def fill_page(page: Path, record: Mapping[str, Any]) -> None:
    """Write the tables between the marks of the page, and keep the text around them."""
    write(page, fill_text(page_text(page), record).encode())


def page_text(page: Path) -> str:
    """Return the text of the page, or of a new one if it does not exist."""
    if not page.exists():
        return f"# Benchmarks\n\n{BEGIN}\n{END}\n"
    text = read_input(page, "markdown")
    if BEGIN not in text or END not in text:
        raise InvalidInput(
            f"markdown={str(page)!r} has no lines {BEGIN} and {END}; add them for the tables"
        )
    return text


def fill_text(text: str, record: Mapping[str, Any]) -> str:
    between = f"{BEGIN}\n\n{markdown(record)}\n\n{END}"
    return re.sub(f"{BEGIN}.*?{END}", lambda _: between, text, count=1, flags=re.DOTALL)


def read_record(path: Path) -> dict[str, Any]:
    """Return a stored record."""
    text = read_input(path, "from")
    try:
        record: dict[str, Any] = json.loads(text)
        markdown(record)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(
            f"from={str(path)!r} is not a file of 'python -m benchmarks --json': {error}"
        ) from error
    return record
