"""The typer application and what its commands share: options, exit codes, error lines, JSON."""

import inspect
import json
import math
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from mecheval.core.errors import (
    DamagedRuns,
    DamagedRunWarning,
    Interrupted,
    InvalidInput,
    MechevalError,
    describe_error,
    expected,
)

Command = TypeVar("Command", bound=Callable[..., None])
# in the order in which a new reader needs them
COMMANDS = {
    "demo": "Train seven architectures and say how each of them recalls.",
    "card": "Write a one-page mechanism card for a mixer.",
    "run": "Run one experiment: train, measure and save.",
    "intervene": "Restore clean activations in corrupted documents of a run.",
    "runs": "List the runs in a folder with their status and accuracy.",
    "results": "Print every measurement of every run, or query them by SQL.",
    "compare": "Test whether groups of runs differ by more than their seeds.",
    "sweep": "Run all experiments of a recipe, show their status, or retry.",
    "figure": "Draw a figure from the runs of a sweep.",
    "report": "Write one self-contained page about folders of runs.",
    "claims": "Test the paper's claims on these runs.",
    "keep": "Archive what runs measured, without their weights.",
    "list": "List everything that can be named, with every option.",
    "show": "Show a task's data, a model's cost or a model's sites.",
    "sample": "Print documents with roles, corrupted twins and trees.",
    "check": "Validate a task, mixer or model, built-in or third-party.",
}


COMPLETION = ("--install-completion", "--show-completion")  # options that typer adds


class OrderedGroup(TyperGroup):
    """Lists commands and sub-apps in the order of COMMANDS, each with its line there as help."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        order = [*COMMANDS, *self.commands]
        self.commands = dict(sorted(self.commands.items(), key=lambda item: order.index(item[0])))
        for name, command in self.commands.items():
            command.short_help = COMMANDS.get(name)
            command.help = command.help or command.short_help

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options; those that set up a shell are used once, and the help is daily."""
        parameters = super().get_params(ctx)
        for parameter in parameters:
            if f"--{str(parameter.name).replace('_', '-')}" in COMPLETION:
                vars(parameter)["hidden"] = True
        return parameters


app = typer.Typer(cls=OrderedGroup, add_completion=True, rich_markup_mode=None)
app.pretty_exceptions_enable = False

Json = Annotated[bool, typer.Option("--json", help="print JSON for programs")]
AllowDamaged = Annotated[
    bool, typer.Option("--allow-damaged", help="exit with 0 even if damaged runs are left out")
]
_PLUGIN = "Python file to import first; it may register tasks, mixers, models, recipes, …"
Plugins = Annotated[list[Path] | None, typer.Option("--plugin", metavar="FILE.py", help=_PLUGIN)]


def whole(text: str | int) -> int:
    """Parse an integer option."""
    try:
        return int(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} must be an integer") from error


Seed = Annotated[int, typer.Option(parser=whole, metavar="INTEGER", help="seed of the data set")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Errors are lines on stderr; `--debug` adds the traceback.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    command = [word for word in words if word != "--debug"] or ["--help"]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # what a terminal cannot encode becomes question marks, not a traceback
            stream.reconfigure(errors="replace")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DamagedRunWarning)  # `say_damaged` names them
            code = int(app(command, standalone_mode=False, prog_name="mecheval") or 0)
        if code == Interrupted.exit_code:  # typer turns Ctrl-C into this code, without a word
            print("interrupted", file=sys.stderr)
        sys.stdout.flush()
        return code
    except (typer.Abort, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        return Interrupted.exit_code
    except BaseException as error:
        if isinstance(error, SystemExit) and _completes(words):
            return int(error.code or 0)
        return _say_error(error, "--debug" in words)


def _completes(words: Sequence[str]) -> bool:
    """Tell whether the shell asks for completions, after which typer exits."""
    return "_MECHEVAL_COMPLETE" in os.environ or any(word in COMPLETION for word in words)


def _say_error(error: BaseException, debug: bool) -> int:
    """Print an error as lines and return its exit code; raise one that is a fault of ours."""
    known = expected(error)
    if isinstance(error, TyperException):
        known = error.format_message(), error.exit_code
    if debug:
        traceback.print_exc()
    elif known is None:
        raise error
    if isinstance(error, OSError) and error.filename is None:
        _drop_output()
    message, code = known or (describe_error(error), MechevalError.exit_code)
    for line in message.splitlines():
        print(line if isinstance(error, Interrupted) else f"error: {line}", file=sys.stderr)
    return code


def _drop_output() -> None:
    """Discard output that cannot be written: Python would try again at exit, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say_damaged(damaged: Sequence[str], allowed: bool) -> None:
    """Name the damaged runs that were left out; raise DamagedRuns unless they are allowed."""
    for line in damaged:
        print(f"warning: {line}", file=sys.stderr)
    if damaged and not allowed:
        runs = "1 run is" if len(damaged) == 1 else f"{len(damaged)} runs are"
        hint = "remove the folder and run it again, or use --allow-damaged"
        raise DamagedRuns(f"{runs} damaged and left out; {hint}")


def script() -> None:
    """Run the command in `sys.argv` and exit."""
    sys.exit(main())


def command_names() -> list[str]:
    """List every command in reading order, a sub-command as `show task`, without hidden aliases."""
    return list(_visible(typer.main.get_group(app)))


def _visible(group: TyperGroup) -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from (f"{name} {inner}" for inner in _visible(command))
        elif not command.hidden:
            yield name


def _print_version(requested: bool) -> bool:
    if requested:
        from mecheval import __version__

        print(__version__)
        raise typer.Exit
    return requested


_VERSION = typer.Option(
    "--version", callback=_print_version, is_eager=True, help="print the version"
)


@app.callback(epilog="Example: mecheval sample recall:pairs=4,vocab=32 -n 2")
def mecheval(
    version: Annotated[bool, _VERSION] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
) -> None:
    """Find out whether a sequence-model architecture recalls, and how."""


def load(plugins: list[Path] | None) -> None:
    """Import the files given by `--plugin`."""
    from mecheval.plugins import load_plugin

    for path in plugins or []:
        load_plugin(path)


def takes_options_of(*others: Callable[..., Any]) -> Callable[[Command], Command]:
    """Return a decorator: `**options` of a command are the keyword-only options of these."""

    def decorate(command: Command) -> Command:
        own = inspect.signature(command).parameters.values()
        parameters = {p.name: p for p in own if p.kind is not p.VAR_KEYWORD}
        for other in others:
            for p in inspect.signature(other).parameters.values():
                if p.kind is p.KEYWORD_ONLY:
                    parameters.setdefault(p.name, p)
        vars(command)["__signature__"] = inspect.Signature(list(parameters.values()))
        return command

    return decorate


def all_of(*steps: Callable[[], Any]) -> list[Any]:
    """Return the results of all steps, or raise the problems of all of them at once."""
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
    """Show a spinner while documents are drawn."""
    from mecheval.terminal.tables import working

    return working("drawing documents (compiled on first use)")


def warn_renamed(old: str, new: str) -> None:
    """Say on stderr that a command has a new name; the old one works for one more version."""
    text = f"note: 'mecheval {old}' is now 'mecheval {new}'; the old name goes in the next version"
    print(text, file=sys.stderr)


def without_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    """Replace NaN, which JSON does not have, by None: no document has the token."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in row.items()
    }


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False))
