"""The command line of the benchmarks."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import show, suite
from mecheval.core.errors import InvalidInput, MechevalError, RunFailed
from mecheval.runs.files import write
from mecheval.terminal import tables as terminal
from mecheval.terminal.tables import clock


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors are lines on stderr."""
    try:
        run(parser().parse_args(arguments))
    except MechevalError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return error.exit_code
    return 0


def parser() -> argparse.ArgumentParser:
    parts = "\n".join(
        f"  {name:<14}{about}" for name, about in {**suite.PARTS, **suite.GUARD}.items()
    )
    words = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure how fast mecheval is, as ratios to plain forms, packages and the machine.",
        epilog=f"parts:\n{parts}\n\nExample: python -m benchmarks startup --quick",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    words.add_argument("parts", nargs="*", metavar="PART", help="parts to measure; all if left out")
    words.add_argument("--quick", action="store_true", help="one round, fewer sizes")
    words.add_argument("--rounds", type=int, help="interleaved rounds; default 5")
    words.add_argument(
        "--json", type=Path, metavar="FILE", help="write every number; resumes if stopped"
    )
    words.add_argument(
        "--markdown", type=Path, metavar="FILE.md", help="write the tables into a page"
    )
    words.add_argument(
        "--from", type=Path, metavar="FILE", dest="kept", help="show a --json file only"
    )
    return words


def run(options: argparse.Namespace) -> None:
    names = suite.select_parts(options.parts)
    for file in (options.json, options.markdown):
        if file and not file.parent.is_dir():
            raise InvalidInput(f"FILE={str(file)!r} cannot be written; its folder does not exist")
    if options.rounds is not None and not 1 <= options.rounds <= 1000:
        raise InvalidInput(f"rounds={options.rounds} must be from 1 to 1000")
    if options.markdown:
        show.page_text(options.markdown)
    record = show.read(options.kept) if options.kept else _measure(names, options)
    terminal.console().print(show.tables(record))
    if options.markdown:
        show.fill(options.markdown, record)
    guard = {name: part for name, part in record["parts"].items() if name == "guard"}
    if missed := suite.missed({"parts": guard}):
        raise RunFailed("\n".join(missed))


def _measure(names: list[str], options: argparse.Namespace) -> dict[str, Any]:
    from benchmarks.machine import load, warning
    from benchmarks.size import FULL, QUICK

    if busy := warning(load()):
        print(f"warning: {busy}", file=sys.stderr)
    size = QUICK if options.quick else FULL
    if options.rounds:
        size = replace(size, rounds=options.rounds)
    partial = options.json.with_suffix(".partial.json") if options.json else None
    record = suite.measure(names, size, _progress(), partial)
    if partial:
        text = json.dumps(record, indent=1, ensure_ascii=False)
        write(options.json, f"{text}\n".encode())
        partial.unlink()
    return record


def _progress() -> Callable[[str, int | float, int | float], None]:
    """Return a callback that shows progress and time left on stderr."""
    start, overwrite = time.monotonic(), sys.stderr.isatty()

    def show_progress(what: str, done: int | float, total: int | float) -> None:
        taken = time.monotonic() - start
        left = f", about {clock(taken / done * (total - done))} left" if 0 < done < total else ""
        text = f"{100 * done / max(total, 1e-9):3.0f} %  {what}{left}"
        if overwrite:
            text = f"\r\033[K{text}"
        print(text, end="\n" if not overwrite or done == total else "", file=sys.stderr, flush=True)

    return show_progress
