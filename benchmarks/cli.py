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
        run(build_parser().parse_args(arguments))
    except MechevalError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return error.exit_code
    return 0


def build_parser() -> argparse.ArgumentParser:
    parts = "\n".join(
        f"  {name:<14}{about}" for name, about in {**suite.PARTS, **suite.GUARD}.items()
    )
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compare the speed of mecheval with plain forms, packages and the machine.",
        epilog=f"parts:\n{parts}\n\nExample: python -m benchmarks startup --quick",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("parts", nargs="*", metavar="PART", help="parts to measure; all if left out")
    add("--quick", action="store_true", help="one round, fewer sizes")
    add("--rounds", type=int, help="interleaved rounds; default 5")
    add("--json", type=Path, metavar="FILE", help="write every number; resumes if stopped")
    add("--markdown", type=Path, metavar="FILE.md", help="write the tables into a page")
    add("--from", type=Path, metavar="FILE", dest="stored", help="only show a --json file")
    return parser


def run(options: argparse.Namespace) -> None:
    names = suite.select_parts(options.parts)
    for file in (options.json, options.markdown):
        if file and not file.parent.is_dir():
            raise InvalidInput(f"cannot write {str(file)!r}; its folder does not exist")
    if options.rounds is not None and not 1 <= options.rounds <= 1000:
        raise InvalidInput(f"rounds={options.rounds} must be from 1 to 1000")
    if options.markdown:
        show.page_text(options.markdown)
    record = show.read_record(options.stored) if options.stored else _measure(names, options)
    terminal.console().print(show.tables(record))
    if options.markdown:
        show.fill_page(options.markdown, record)
    guard = {name: part for name, part in record["parts"].items() if name == "guard"}
    if failures := suite.missed_floors({"parts": guard}):
        raise RunFailed("\n".join(failures))


def _measure(names: list[str], options: argparse.Namespace) -> dict[str, Any]:
    from benchmarks.machine import load, load_warning
    from benchmarks.size import FULL, QUICK

    if warning := load_warning(load()):
        print(f"warning: {warning}", file=sys.stderr)
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

    def show_progress(name: str, done: int | float, total: int | float) -> None:
        elapsed = time.monotonic() - start
        left = f", about {clock(elapsed / done * (total - done))} left" if 0 < done < total else ""
        text = f"{100 * done / max(total, 1e-9):3.0f} %  {name}{left}"
        if overwrite:
            text = f"\r\033[K{text}"
        print(text, end="\n" if not overwrite or done == total else "", file=sys.stderr, flush=True)

    return show_progress
