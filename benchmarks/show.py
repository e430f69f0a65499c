"""A record as tables, for a terminal and for a page, from the same cells."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mecheval.core.errors import InvalidInput

HEADER = ("what", "against", "ratio", "least–most", "floor", "", "ours", "theirs", "note")
SHOWN = 7  # of these in a terminal
NUMBERS = ("ratio", "least–most", "floor", "ours", "theirs")
COLOURS = {"ok": "green", "below": "bold red", "above": "bold red"}
UNITS = {"×": "×", "%": " %", "exponent": "", "s": " s", "apart": ""}
BEGIN, END = "<!-- measured -->", "<!-- end -->"


def cells(line: Mapping[str, Any]) -> tuple[str, ...]:
    unit, floor = UNITS[line["unit"]], line["floor"]
    ends = [line["least"], line["most"]]
    return (
        line["what"],
        line["against"],
        "–" if line["ratio"] is None else number(line["ratio"]) + unit,
        "" if ends[0] == ends[1] else "–".join(map(number, ends)),
        ""
        if floor is None
        else f"{'≥' if floor['sense'] == 'at least' else '≤'} {number(floor['value'])}{unit}",
        line["verdict"] or "",
        _measured(line["ours"]),
        _measured(line["theirs"]),
        line["note"],
    )


def number(value: int | float) -> str:
    """Three digits that count."""
    if value == 0 or abs(value) < 1e-3:
        return f"{value:.0e}" if value else "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _measured(found: Mapping[str, Mapping[str, float]]) -> str:
    """The first kind that was measured, CPU before wall."""
    for name, unit in (("cpu_ms", "ms"), ("wall_ms", "ms"), ("mb", "MB")):
        if name in found:
            value = found[name]["median"]
            return (
                f"{number(value * 1e3)} µs"
                if unit == "ms" and value < 0.1
                else f"{number(value)} {unit}"
            )
    return ""


def tables(record: Mapping[str, Any]) -> Group:
    """As wide as a terminal of 80 columns; notes stand below."""
    shown: list[RenderableType] = [Text(machine(record), "dim")]
    for part, found in record["parts"].items():
        table = Table(
            box=None, pad_edge=False, title=Text(f"\n{part}", "bold"), title_justify="left"
        )
        for name in HEADER[:SHOWN]:
            table.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=True)
        for row in map(cells, found["lines"]):
            table.add_row(*(Text(cell, COLOURS.get(cell, "")) for cell in row[:SHOWN]))
        notes = [
            f"{line['what']}, {line['against']}: {line['note']}"
            for line in found["lines"]
            if line["note"]
        ]
        about = re.sub("[*`]", "", found["caption"])
        shown += [table, *(Text(text, "dim") for text in (about, *notes))]
    return Group(*shown)


def markdown(record: Mapping[str, Any]) -> str:
    parts = [machine(record)]
    for part, found in record["parts"].items():
        rows = [
            HEADER,
            tuple("--:" if name in NUMBERS else "---" for name in HEADER),
            *map(cells, found["lines"]),
        ]
        parts += [f"## {part}", found["caption"]]
        parts.append(
            "\n".join(f"| {' | '.join(cell.replace('|', '¦') for cell in row)} |" for row in rows)
        )
    return "\n\n".join(parts)


def machine(record: Mapping[str, Any]) -> str:
    """One sentence."""
    found, rounds = record["machine"], record["size"]["rounds"]
    busy = "" if found["load"] is None else f", load {found['load']:.1f} at the start"
    return (
        f"{found['processor']}, {found['cores']} cores, {found['threads']} thread, torch {found['torch']}, numba "
        f"{found['numba']}, Python {found['python']}; denormals {'flushed' if found['flush_denormal'] else 'kept'}; a "
        f"product of large matrices runs at {found['gemm_peak_gflops']:.0f} GFLOP/s; {rounds} interleaved "
        f"round{'s' * (rounds > 1)}, medians of CPU time; {found['started'][:10]}{busy}."
    )


def fill(page: Path, record: Mapping[str, Any]) -> None:
    """Writes the tables between the page's marks; what stands around them stays."""
    page.write_text(filled(page_text(page), record), encoding="utf-8")


def page_text(page: Path) -> str:
    """Of a page that can be filled; a new one, if it is not there yet."""
    if not page.exists():
        return f"# Benchmarks\n\n{BEGIN}\n{END}\n"
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise InvalidInput(
            f"markdown={str(page)!r} must have the lines {BEGIN} and {END}, for what is between them"
        )
    return text


def filled(text: str, record: Mapping[str, Any]) -> str:
    between = f"{BEGIN}\n\n{markdown(record)}\n\n{END}"
    return re.sub(f"{BEGIN}.*?{END}", lambda _: between, text, count=1, flags=re.DOTALL)


def read(path: Path) -> dict[str, Any]:
    """A record that was kept."""
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        markdown(record)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(
            f"from={str(path)!r} must be what 'python -m benchmarks --json' wrote: {error}"
        ) from error
    return record
