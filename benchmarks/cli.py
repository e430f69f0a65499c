"""Speed, as ratios."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from mecheval.cli.app import all_of, app, whole
from mecheval.core.errors import InvalidInput, RunFailed


@app.command(epilog="Example: mecheval bench startup --quick")
def bench(
    parts: Annotated[list[str] | None, typer.Argument(metavar="PART", help="all if left out; guard is one")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="a short look: one round, fewer sizes")] = False,
    rounds: Annotated[
        int | None, typer.Option(parser=whole, metavar="INTEGER", help="interleaved rounds; 5 if left out")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="write every number")] = None,
    page: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE.md", help="write the tables between the marks of a page")
    ] = None,
    kept: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="show what --json wrote; nothing is measured")
    ] = None,
    show_parts: Annotated[bool, typer.Option("--list", help="say what the parts are")] = False,
) -> None:
    """Measures how fast this is: against the plain form, against packages, against the machine's limit.

    Everything is a ratio, measured in interleaved rounds of one run. Nothing else should run meanwhile.
    """
    from benchmarks import show, suite

    if show_parts:
        print(*(f"{name:<14}{about}" for name, about in {**suite.PARTS, **suite.GUARD}.items()), sep="\n")
        return
    names, given, *_ = all_of(
        lambda: suite.named(parts or []),
        lambda: _rounds(rounds),
        lambda: _writable(json_file, page),
        lambda: show.page_text(page) if page else None,
    )
    record = show.read(kept) if kept else _measured(names, quick, given)
    from mecheval.terminal import tables as terminal

    terminal.console().print(show.tables(record))
    if json_file:
        json_file.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if page:
        show.fill(page, record)
    if "guard" in record["parts"] and (lost := suite.missed({"parts": {"guard": record["parts"]["guard"]}})):
        raise RunFailed("\n".join(lost))


def _rounds(given: int | None) -> dict[str, Any]:
    if given is not None and not 1 <= given <= 1000:
        raise InvalidInput(f"rounds={given} must be from 1 to 1000")
    return {} if given is None else {"rounds": given}


def _writable(*files: Path | None) -> None:
    """Before minutes are spent."""
    if wrong := [file for file in files if file and (file.is_dir() or not file.parent.is_dir())]:
        raise InvalidInput(f"FILE={str(file)!r} must be a file in a folder that is there" for file in wrong)


def _measured(names: list[str], quick: bool, given: dict[str, Any]) -> dict[str, Any]:
    from benchmarks.machine import load, warning
    from benchmarks.size import FULL, QUICK
    from benchmarks.suite import measure

    if busy := warning(load()):
        print(f"warning: {busy}", file=sys.stderr)
    return measure(names, replace(QUICK if quick else FULL, **given), _progress())


def _progress() -> Callable[[str, int | float, int | float], None]:
    """On stderr: a line that is written over on a terminal, lines elsewhere."""
    from mecheval.terminal.tables import clock

    began, over = time.monotonic(), sys.stderr.isatty()

    def say(what: str, done: int | float, total: int | float) -> None:
        taken = time.monotonic() - began
        left = f", about {clock(taken / done * (total - done))} left" if 0 < done < total else ""
        text = f"{100 * done / max(total, 1e-9):3.0f} %  {what}{left}"
        print(f"\r\033[K{text}" if over else text, end="" if over else "\n", file=sys.stderr, flush=True)
        if over and done == total:
            print(file=sys.stderr)

    return say
