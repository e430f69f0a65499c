"""The commands `run`, `runs` and `results`: run an experiment, list runs, print measurements."""

import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from mecheval.cli.app import (
    AllowDamaged,
    Json,
    Plugins,
    all_of,
    app,
    load,
    print_json,
    say_damaged,
    whole,
)

FIELDS = typer.Argument(metavar="[TASK MODEL] [FIELD=VALUE]...", help="task, model, fields to set")
TOML = typer.Option("--file", metavar="FILE.toml", help="an experiment in TOML")
THREADS = typer.Option(parser=whole, metavar="INTEGER", help="torch threads (they change results)")
LOGGERS = typer.Option(metavar="NAME", help="also log to wandb or tensorboard")
PARQUET = typer.Option("--parquet", metavar="FILE", help="write a Parquet file")
SQL = typer.Option(help="an SQL query on runs, rows and curves; --columns lists their columns")
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="a folder with runs")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="folder for run folders")]
Seconds = Annotated[float, typer.Option(metavar="SECONDS", help="time between checkpoints")]
EXAMPLE = "run recall:pairs=4,vocab=64 mamba:d_conv=2 train.steps=50 train.lr=3e-3 --out runs"


@app.command(epilog=f"Example: mecheval {EXAMPLE}")
def run(
    words: Annotated[list[str] | None, FIELDS] = None,
    file: Annotated[Path | None, TOML] = None,
    out: Out = Path("runs"),
    device: Annotated[str, typer.Option(help="cpu, cuda or mps")] = "cpu",
    threads: Annotated[int, THREADS] = 1,
    save_every: Seconds = 30.0,
    log: Annotated[list[str] | None, LOGGERS] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Train and measure one experiment; rerun the same command to resume or to see the results."""
    from mecheval.core.plugin_files import checksums
    from mecheval.runs.experiment import Settings
    from mecheval.runs.loggers import logger
    from mecheval.runs.overrides import read_experiment

    load(plugin)
    options: dict[str, Any] = {"device": device, "threads": threads, "save_every": save_every}
    experiment, settings, loggers = all_of(
        lambda: read_experiment(words or [], file),
        lambda: Settings(**options, plugins=checksums()),
        lambda: [logger(name) for name in log or []],
    )
    from mecheval.runs.run import run as run_experiment
    from mecheval.terminal import tables
    from mecheval.terminal.live import progress

    finished = run_experiment(experiment, out, settings, [progress(), *loggers])
    if as_json:
        print_json(finished.summary())
    else:
        tables.console().print(tables.run_summary(finished))


@app.command(epilog="Example: mecheval runs runs")
def runs(folder: Folder, as_json: Json = False) -> None:
    """List the runs in a folder: finished, running, stopped, killed, damaged."""
    from mecheval.results.table import Results

    table = Results(folder)
    if as_json:
        print_json(table.runs())
        return
    from mecheval.terminal import tables

    console = tables.roomy_console()
    console.print(tables.run_table(table.runs(), table.rows(), console.width))


@app.command(epilog="Example: mecheval results runs --csv > rows.csv")
def results(
    folder: Folder,
    sql: Annotated[str, SQL] = "from rows",
    csv: Annotated[bool, typer.Option("--csv", help="print CSV")] = False,
    parquet: Annotated[Path | None, PARQUET] = None,
    columns: Annotated[bool, typer.Option("--columns", help="list tables and columns")] = False,
    allow_damaged: AllowDamaged = False,
    as_json: Json = False,
) -> None:
    """Print every measurement of every run, or the answer to an SQL query about them."""
    from mecheval.results.table import Results

    runs = Results(folder)
    if columns:
        _print_columns(runs.columns(), as_json)
        return
    table = runs.sql(sql)
    if parquet is not None:
        from mecheval.results.parquet import write_parquet

        write_parquet(table, parquet)
    elif as_json:
        rows = table.to_dict(orient="records")
        print_json([{name: _plain(value) for name, value in row.items()} for row in rows])
    elif csv:
        from mecheval.results.csv import to_csv

        sys.stdout.write(to_csv(table))
    else:
        from mecheval.terminal import tables

        console = tables.roomy_console()
        console.print(tables.frame(table, console.width))
    say_damaged(runs.damaged(), allow_damaged)


def _print_columns(lines: list[dict[str, str]], as_json: bool) -> None:
    if as_json:
        print_json(lines)
        return
    from mecheval.terminal import tables

    tables.console().print(tables.column_list(lines))


def _plain(value: Any) -> Any:
    """Convert a cell to what JSON knows: no NaN, no infinity; dates as text."""
    if hasattr(value, "tolist"):
        return [_plain(inner) for inner in value.tolist()]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bool | int | str | None):
        return value
    return None if value != value else str(value)
