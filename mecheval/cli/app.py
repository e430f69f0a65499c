"""The command line: parse, one call, print. Errors are lines on stderr, and every command has its exit code."""

import json
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from mecheval.core.errors import Interrupted, InvalidInput, MechevalError

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

Json = Annotated[bool, typer.Option("--json", help="print JSON for programs")]
Plugins = Annotated[
    list[Path] | None, typer.Option("--plugin", metavar="FILE.py", help="run this file first; it may register")
]


def whole(text: str | int) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} must be an integer") from error


Seed = Annotated[int, typer.Option(parser=whole, metavar="INTEGER", help="which data set")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; errors are lines on stderr, `--debug` shows where they come from."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    asked = [word for word in words if word != "--debug"] or ["--help"]
    try:
        return int(app(asked, standalone_mode=False, prog_name="mecheval") or 0)
    except typer.Abort:
        print("interrupted", file=sys.stderr)
        return Interrupted.exit_code
    except (MechevalError, TyperException) as error:
        if "--debug" in words:
            traceback.print_exc()
        message = error.format_message() if isinstance(error, TyperException) else str(error)
        for line in message.splitlines():
            print(line if isinstance(error, Interrupted) else f"error: {line}", file=sys.stderr)
        return error.exit_code


def script() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without – and → gets question marks, not a traceback
    sys.exit(main())


def _print_version(asked: bool) -> bool:
    if asked:
        from mecheval import __version__

        print(__version__)
        raise typer.Exit
    return asked


@app.callback(epilog="Example: mecheval sample recall:pairs=4,vocab=32 -n 2")
def mecheval(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
) -> None:
    """How does a sequence-model architecture recall, and not only whether."""


def load(plugins: list[Path] | None) -> None:
    from mecheval.plugins import load_plugin

    for path in plugins or []:
        load_plugin(path)


def build_task(text: str) -> Any:
    from mecheval import plugins

    return plugins.build_task(text)


def all_of(*steps: Callable[[], Any]) -> list[Any]:
    """What the steps return, or the problems of all of them at once."""
    results: list[Any] = []
    problems: list[str] = []
    for step in steps:
        try:
            results.append(step())
        except InvalidInput as error:
            problems += error.problems
    if problems:
        raise InvalidInput(problems)
    return results


def drawing() -> AbstractContextManager[Any]:
    from mecheval.terminal.tables import working

    return working("drawing documents (compiled on first use)")


def warn_renamed(old: str, new: str) -> None:
    """Say on stderr that a command has a new name; the old one works for one more version."""
    text = f"note: 'mecheval {old}' is now 'mecheval {new}'; the old name goes in the next version"
    print(text, file=sys.stderr)


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False))
