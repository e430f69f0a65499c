"""Running experiments and reading what they left."""

import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from mecheval.cli.app import Json, Plugins, all_of, app, load, print_json, whole
from mecheval.core.errors import InvalidInput, StoreError

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TASK MODEL] [FIELD=VALUE]...", help="what is run on what, and fields that differ", show_default=False
    ),
]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="a folder with runs")]


@app.command(
    epilog="Example: mecheval run recall:pairs=4,vocab=64 mamba:d_conv=2 train.steps=50 train.lr=3e-3 --out runs"
)
def run(
    words: Words = None,
    file: Annotated[Path | None, typer.Option("--file", metavar="FILE.toml", help="an experiment in TOML")] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="where run folders are")] = Path("runs"),
    device: Annotated[str, typer.Option(help="cpu, cuda or mps")] = "cpu",
    threads: Annotated[int, typer.Option(parser=whole, metavar="INTEGER", help="torch threads; they change bits")] = 1,
    save_every: Annotated[float, typer.Option(metavar="SECONDS", help="between checkpoints")] = 30.0,
    log: Annotated[list[str] | None, typer.Option(metavar="NAME", help="tell wandb or tensorboard, too")] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Trains and measures one experiment; the same command goes on after a kill, and shows what is finished."""
    from mecheval.core.options import validate
    from mecheval.plugins import checksums
    from mecheval.runs.experiment import Settings
    from mecheval.runs.loggers import logger

    wanted = {"device": device, "threads": threads, "save_every": save_every}
    load(plugin)
    experiment, settings, loggers = all_of(
        lambda: _experiment(words or [], file),
        lambda: Settings(**validate(Settings, wanted, given=("plugins",)), plugins=checksums()),
        lambda: [logger(name) for name in log or []],
    )
    from mecheval.runs.run import run as carry_out
    from mecheval.terminal.live import progress

    found = carry_out(experiment, out, settings, [progress(), *loggers])
    if as_json:
        print_json(found.summary())
        return
    from mecheval.terminal import tables as terminal

    terminal.console().print(terminal.run_summary(experiment.fields(), found.summary()))


@app.command(epilog="Example: mecheval runs runs")
def runs(folder: Folder, as_json: Json = False) -> None:
    """Lists the runs in a folder: finished, on their way, killed, damaged."""
    from mecheval.results.table import Results

    found = Results(folder)
    if as_json:
        print_json(found.runs())
        return
    from mecheval.terminal import tables as terminal

    console = terminal.roomy_console()
    console.print(terminal.run_table(found.runs(), found.rows(), console.width))


@app.command(epilog="Example: mecheval results runs --csv > rows.csv")
def results(
    folder: Folder,
    sql: Annotated[str, typer.Option(help="a question in SQL about the tables runs, rows and curves")] = "from rows",
    csv: Annotated[bool, typer.Option("--csv", help="print CSV")] = False,
    parquet: Annotated[Path | None, typer.Option("--parquet", metavar="FILE", help="write a Parquet file")] = None,
    as_json: Json = False,
) -> None:
    """Prints every measurement of every run, or the answer to a question about them."""
    from mecheval.results.table import Results

    table = Results(folder).sql(sql)
    if parquet is not None:
        from mecheval.results.archive import write_parquet

        try:
            write_parquet(table, parquet)
        except StoreError as error:
            raise InvalidInput(f"parquet={str(parquet)!r}: {error}") from error
    elif as_json:
        print_json([{name: _plain(value) for name, value in row.items()} for row in table.to_dict(orient="records")])
    elif csv:
        table.to_csv(sys.stdout, index=False)
    else:
        from mecheval.terminal import tables as terminal

        console = terminal.roomy_console()
        console.print(terminal.frame(table, console.width))


def _experiment(words: list[str], file: Path | None) -> Any:
    from mecheval.models.registries import mixers
    from mecheval.plugins import registered
    from mecheval.runs.experiment import Experiment
    from mecheval.runs.overrides import OVERRIDE, Written, from_toml, from_words
    from mecheval.tasks import tasks

    names = [word for word in words if not OVERRIDE.fullmatch(word)]
    if len(names) not in (0, 2) or not (names or file):
        shown = " ".join(names) or "nothing"
        raise InvalidInput(
            f"{shown!r} must be TASK and MODEL, as in 'mecheval run recall mamba', or --file must give them"
        )
    written = from_toml(file) if file else Written()
    written |= Written(dict(zip(("task", "model.architecture"), names, strict=False)))
    overrides = from_words([word for word in words if OVERRIDE.fullmatch(word)])
    if names and (twice := overrides.values.keys() & {"task", "model.architecture"}):
        raise InvalidInput(f"{name} is given twice: {names} and {overrides.values[name]!r}" for name in sorted(twice))
    written |= overrides
    values = dict(written.values)
    for name, registry in (("task", tasks), ("model.architecture", mixers)):
        if isinstance(values.get(name), str):
            values[name] = registered(registry, values[name])
    return Experiment.of(values, written.places)


def _plain(value: Any) -> Any:
    """A cell as JSON knows it: no NaN, no infinity; dates as text."""
    if hasattr(value, "tolist"):
        return [_plain(inner) for inner in value.tolist()]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, bool | int | str | None) else None if value != value else str(value)
