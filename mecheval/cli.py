"""The command line: parse, one call, print."""

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

from mecheval.errors import InvalidInput, MechevalError

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

TaskText = Annotated[str, typer.Argument(metavar="TASK", help="a task with options, a preset, or file.py:Class")]
NameText = Annotated[str, typer.Argument(metavar="NAME", help="a task, an architecture or a mixer, with options")]
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
    except (MechevalError, TyperException) as error:
        if "--debug" in words:
            traceback.print_exc()
        message = error.format_message() if isinstance(error, TyperException) else str(error)
        for line in message.splitlines():
            print(f"error: {line}", file=sys.stderr)
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


@app.command(epilog="Example: mecheval demo")
def demo() -> None:
    """Shows documents of both tasks, with their corrupted twins and what their data sets are like."""
    for text, seed in (("recall:pairs=4,vocab=32", 0), ("treecall", 0)):
        sample(text, n=2, seed=seed)
    for text in ("ar_16pairs", "atr"):
        describe(text)


@app.command(epilog="Example: mecheval sample atr -n 3 --seed 0 --split test")
def sample(
    task: TaskText,
    n: Annotated[int, typer.Option("-n", parser=whole, metavar="INTEGER", help="how many documents")] = 3,
    seed: Seed = 0,
    split: Annotated[str, typer.Option(help="train, dev or test")] = "test",
    start: Annotated[int, typer.Option(parser=whole, metavar="INTEGER", help="number of the first document")] = 0,
    role: Annotated[str, typer.Option(help="what is corrupted: key, value or query")] = "key",
    kind: Annotated[str, typer.Option(help="how: resample or swap")] = "resample",
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Shows documents with their roles, their corrupted twins and their trees."""
    from mecheval.options import checked
    from mecheval.tasks import records

    wanted = {"n": n, "seed": seed, "split": split, "start": start, "role": role, "kind": kind}
    _load(plugin)
    built, settings = _all(lambda: _task(task), lambda: checked(records.sample, wanted, given=("task",)))
    with _drawing():
        found = records.sample(built, **settings)
    if as_json:
        _print_json([record.to_dict() for record in found])
        return
    from mecheval import terminal

    console = terminal.console()
    console.print(terminal.title(task, split, f"seed {seed}", f"{role} corrupted by {kind}"))
    console.print(terminal.legend(), "", sep="\n")
    for record in found:
        console.print(f"document {record.index} ", end="")
        console.print(terminal.document(record, console.width), "")


@app.command(epilog="Example: mecheval describe atr_split")
def describe(
    name: NameText,
    seed: Seed = 0,
    train: Annotated[
        int, typer.Option(parser=whole, metavar="INTEGER", help="task: documents in the training set")
    ] = 100_032,
    evaluation: Annotated[
        int, typer.Option(parser=whole, metavar="INTEGER", help="task: documents in dev and in test")
    ] = 1024,
    d_model: Annotated[int, typer.Option(parser=whole, metavar="INTEGER", help="model: width")] = 64,
    layers: Annotated[int, typer.Option(parser=whole, metavar="INTEGER", help="model: blocks")] = 2,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Says what a data set is really like, or what a model costs."""
    from mecheval import terminal
    from mecheval.options import checked
    from mecheval.plugins import is_model
    from mecheval.tasks import honesty

    _load(plugin)
    if is_model(name):
        model = _model(name, d_model, layers)
        from mecheval.models.facts import describe_model

        costs = describe_model(model)
        if as_json:
            _print_json({"model": name, "d_model": d_model, "layers": layers, **costs.to_dict()})
        else:
            title = terminal.title(name, f"d_model {d_model}", f"{layers} layers")
            terminal.console().print(title, terminal.costs(costs), "", sep="\n")
        return
    wanted = {"seed": seed, "train": train, "evaluation": evaluation}
    built, settings = _all(lambda: _task(name), lambda: checked(honesty.describe, wanted, given=("task",)))
    with _drawing():
        facts = honesty.describe(built, **settings)
    if as_json:
        _print_json({"task": name, "seed": seed, **facts.to_dict()})
        return
    terminal.console().print(terminal.title(name, f"seed {seed}"), terminal.honesty(facts), "", sep="\n")


@app.command("list", epilog="Example: mecheval list tasks --json")
def list_(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="tasks, architectures, mixers, or sites MODEL")],
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="whose sites, as in: list sites mamba")] = None,
    layers: Annotated[int, typer.Option(parser=whole, metavar="INTEGER", help="sites: blocks")] = 2,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Lists what can be named: with every option, or with every site of a model."""
    from mecheval import terminal
    from mecheval.models.named import architectures, mixers
    from mecheval.options import nearest
    from mecheval.tasks import tasks

    registries = {"tasks": tasks, "architectures": architectures, "mixers": mixers}
    if what not in (*registries, "sites"):
        raise InvalidInput(f"nothing to list by the name {what!r}{nearest(what, [*registries, 'sites'])}")
    if (what == "sites") != (model is not None):
        raise InvalidInput("'list sites' must name a MODEL, as in 'mecheval list sites mamba', and nothing else may")
    _load(plugin)
    if model is not None:
        built = _model(model, 16, layers)
        from mecheval.models.site import sites

        found = [{"name": name, "shape": list(site.axes), "summary": site.about} for name, site in sites(built).items()]
        if as_json:
            _print_json(found)
        else:
            terminal.console().print(terminal.site_table(found))
        return
    registry = registries[what]
    entries = [registry.describe(name) for name in registry.names()]
    if as_json:
        _print_json([entry.to_dict() for entry in entries])
    else:
        terminal.console().print(terminal.entries(what, entries))


@app.command(epilog="Example: mecheval check mamba:d_conv=2")
def check(name: NameText, plugin: Plugins = None, as_json: Json = False) -> None:
    """Examines a task or a mixer, built in or of your own (file.py:Class): whether it keeps every promise."""
    from mecheval.plugins import check_named

    _load(plugin)
    with _drawing():
        check_named(name)
    if as_json:
        _print_json({"name": name, "failures": []})
    else:
        print(f"{name}: keeps every promise")


def _load(plugins: list[Path] | None) -> None:
    from mecheval.plugins import load_plugin

    for path in plugins or []:
        load_plugin(path)


def _task(text: str) -> Any:
    from mecheval.plugins import build_task

    return build_task(text)


def _model(text: str, d_model: int, layers: int) -> Any:
    from mecheval.models.config import ModelConfig

    config = ModelConfig(architecture=text, d_model=d_model, layers=layers)  # refused here, torch is not loaded
    from mecheval.models.language_model import LanguageModel

    return LanguageModel(config, vocab_size=8195)


def _all(*steps: Callable[[], Any]) -> list[Any]:
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


def _drawing() -> AbstractContextManager[Any]:
    from mecheval.terminal import working

    return working("drawing documents (compiled on first use)")


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False))
