"""Sweeps: run the experiments of a recipe, show their status, retry those that failed."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from mecheval.cli.app import (
    Json,
    Plugins,
    all_of,
    app,
    load,
    print_json,
    takes_options_of,
    warn_renamed,
    whole,
)
from mecheval.cli.sweep_report import print_report, write_report
from mecheval.core.errors import Interrupted, InvalidInput, RunFailed

if TYPE_CHECKING:
    from mecheval.results.plan import Plan
    from mecheval.runs.experiment import Experiment
    from mecheval.sweeps.estimate import Costs
    from mecheval.sweeps.planned import PlannedRun
    from mecheval.sweeps.sweep import Executor, Sweep, SweepOptions


class SweepGroup(TyperGroup):
    """Accepts `sweep RECIPE`, the spelling of version 0.1, for `sweep run RECIPE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            warn_renamed("sweep RECIPE", "sweep run RECIPE")
            args = ["run", *args]
        return super().parse_args(ctx, args)


sweep_app = typer.Typer(
    cls=SweepGroup,
    help="Run all experiments of a recipe, show their status, or retry.",
    epilog="Example: mecheval sweep run emergence --scale quick",
)
app.add_typer(sweep_app, name="sweep")


def _integer(help: str, metavar: str = "INTEGER") -> Any:
    return typer.Option(parser=whole, metavar=metavar, help=help)


Workers = Annotated[int | None, _integer("processes at once; default: all cores")]
Timeout = Annotated[float | None, typer.Option(metavar="SECONDS", help="limit of a run")]
Device = Annotated[str, typer.Option(help="cpu, cuda or mps")]
SaveEvery = Annotated[float, typer.Option(metavar="SECONDS", help="between checkpoints")]
Shuffle = Annotated[int | None, _integer("start the runs in a random order", metavar="SEED")]
_RAY = "run on the Ray cluster at this address, or 'local'"
Ray = Annotated[str | None, typer.Option(metavar="ADDRESS", help=_RAY)]
Slurm = Annotated[bool, typer.Option("--slurm", help="submit an array to Slurm, and return")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="estimate the time, write nothing")]
_REUSE = "copy finished runs of the same experiments from this folder"
Reuse = Annotated[list[Path] | None, typer.Option(metavar="DIR", help=_REUSE)]
_NO_REPORT = "do not write figure and report at the end"
NoReport = Annotated[bool, typer.Option("--no-report", help=_NO_REPORT)]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="the folder of a sweep")]
_RECIPE = "whose experiments; 'mecheval list recipes' shows all"
_OUT = "folder of the runs; default: runs/RECIPE-SCALE"


def _launch(
    only: Sequence[str],
    prepare: Callable[[], Any],
    build: "Callable[[Any, SweepOptions], Sweep]",
    *,
    workers: Workers = None,
    timeout: Timeout = None,
    device: Device = "cpu",
    save_every: SaveEvery = 30.0,
    shuffle: Shuffle = None,
    ray: Ray = None,
    slurm: Slurm = False,
    dry_run: DryRun = False,
    reuse: Reuse = None,
    plugin: Plugins = None,
    no_report: NoReport = False,
    as_json: Json = False,
) -> None:
    """Run, submit or estimate the experiments whose status is in `only`.

    `build` makes the sweep of what `prepare` returns; the problems of both and of the options are
    reported together.
    """
    load(plugin)
    limits = {"timeout": timeout, "save_every": save_every, "shuffle": shuffle}
    options, prepared, _ = all_of(
        lambda: _options(workers, device, plugin, reuse, **limits),
        prepare,
        lambda: _check_where(ray, slurm),
    )
    sweep = build(prepared, options)
    if ray is None and not slurm:
        options.check_device()
    if dry_run:
        _print_estimate(sweep, only, as_json)
    elif slurm:
        _submit(sweep, only, workers, as_json)
    else:
        _execute(sweep, only, ray, not no_report, as_json)


@sweep_app.command(epilog="Example: mecheval sweep run emergence --scale quick")
@takes_options_of(_launch)
def run(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help=_RECIPE)],
    scale: Annotated[str, typer.Option(help="quick, small, laptop or paper")] = "quick",
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help=_OUT)] = None,
    **options: Any,
) -> None:
    """Run the experiments of a recipe that are not finished.

    It ends by writing figure and report into the folder. Rerun the same command to resume.
    """
    from mecheval.sweeps.sweep import OPEN, Sweep

    folder = out or Path("runs") / f"{recipe}-{scale}"

    def build(experiments: "list[Experiment]", options: "SweepOptions") -> "Sweep":
        return Sweep(experiments, folder, recipe, scale, options)

    _launch(OPEN, lambda: _experiments(recipe, scale), build, **options)


@sweep_app.command(epilog="Example: mecheval sweep status runs/emergence-quick")
def status(folder: Folder, as_json: Json = False) -> None:
    """Show the status of every experiment of a sweep."""
    from mecheval.results.plan import Plan
    from mecheval.results.table import Results
    from mecheval.sweeps.planned import read_progress

    plan = Plan.require(folder)
    results = Results(folder)
    rows = plan.states(results)
    if others := plan.unplanned(results):
        print(f"warning: {others}", file=sys.stderr)
    for row in rows:
        if row["status"] == "running":
            row |= read_progress(Path(row["folder"]))
    if as_json:
        print_json(_summary(plan, folder, rows))
    else:
        from mecheval.terminal.sweep_view import failures

        _print_rows(plan, folder, rows)
        print(*failures(rows), sep="\n")


@sweep_app.command(epilog="Example: mecheval sweep retry runs/emergence-quick")
@takes_options_of(_launch)
def retry(folder: Folder, **options: Any) -> None:
    """Run the failed and the stopped experiments of a sweep again."""
    from mecheval.results.plan import Plan
    from mecheval.sweeps.sweep import AGAIN, Sweep

    def build(plan: Plan, options: "SweepOptions") -> Sweep:
        return Sweep.read(folder, options)

    _launch(AGAIN, lambda: Plan.require(folder), build, **options)


def validated_device(device: str) -> Any:
    """Return a device that torch knows, or refuse it."""
    from mecheval.core.options import validate
    from mecheval.runs.experiment import Settings

    return validate(Settings, {"device": device}, given=("plugins",))["device"]


def _options(
    workers: int | None,
    device: str,
    plugins: list[Path] | None,
    reuse: list[Path] | None,
    **others: Any,
) -> "SweepOptions":
    from mecheval.sweeps.sweep import SweepOptions, cores

    files, folders = tuple(map(str, plugins or ())), tuple(reuse or ())
    count = cores() if workers is None else workers
    others["device"] = validated_device(device)
    return SweepOptions(workers=count, plugins=files, reuse=folders, **others)


def _experiments(recipe: str, scale: str) -> "list[Experiment]":
    from mecheval.sweeps.recipe import get_experiments, get_scale, recipes

    _, size = all_of(lambda: recipes.get(recipe), lambda: get_scale(scale))
    return get_experiments(recipe, size)


def _check_where(ray: str | None, slurm: bool) -> None:
    from mecheval.sweeps.ray import check_address

    if slurm and ray is not None:
        raise InvalidInput("--ray and --slurm cannot be used both; choose one")
    if ray is not None:
        check_address(ray)


def _execute(
    sweep: "Sweep",
    only: Sequence[str],
    ray: str | None,
    report: bool,
    as_json: bool,
) -> None:
    from mecheval.runs.pending import STOPPED
    from mecheval.terminal.sweep_view import failures, sweep_progress

    interruption: Interrupted | None = None
    with sweep_progress(sweep.options.workers) as watch, _executor(sweep, ray) as executor:
        try:
            runs = sweep.execute(executor, only, watch)
        except Interrupted as error:
            interruption, runs = error, sweep.runs()
    rows = [run.row() for run in runs]
    written = write_report(sweep.folder) if report else None
    if as_json:
        report_path, *figures = map(str, written[1]) if written else [None]
        paths = {"report": report_path, "figures": figures}
        print_json({**_summary(sweep.plan, sweep.folder, rows), **paths})
    else:
        _print_rows(sweep.plan, sweep.folder, rows)
        if written:
            print_report(*written)
    if interruption:
        raise interruption
    if failed := failures(rows):
        again = f"'mecheval sweep retry {sweep.folder}' tries again"
        stopped = any(row["status"] == STOPPED for row in rows)
        count = f"{len(failed)} of {len(rows)} runs {'are not finished' if stopped else 'failed'}"
        raise RunFailed("\n".join([*failed, f"{count}; {again}"]))


@contextmanager
def _executor(sweep: "Sweep", ray: str | None) -> "Iterator[Callable[[], Executor]]":
    """Yield a function that returns the executor.

    Local workers start at once, to be ready in time; a cluster is contacted if there is work.
    """
    if ray is not None:
        from mecheval.sweeps.ray import Cluster

        yield lambda: Cluster(ray, sweep.options.workers)
        return
    from mecheval.sweeps.local import Local

    local = Local(sweep.options.workers)
    try:
        yield lambda: local
    finally:
        local.stop()


def _summary(plan: "Plan", folder: Path, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    names = {"recipe": plan.recipe, "scale": plan.scale, "folder": str(folder)}
    return {**names, "counts": Counter(row["status"] for row in rows), "runs": rows}


def _print_rows(plan: "Plan", folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    from mecheval.terminal.sweep_view import cells, summary
    from mecheval.terminal.tables import console, title

    screen = console()
    screen.print(title(plan.recipe, plan.scale, str(folder)))
    screen.print(cells(rows, len(rows)), summary(rows))


def _print_estimate(sweep: "Sweep", only: Sequence[str], as_json: bool) -> None:
    from mecheval.sweeps.reuse import find_reusable

    runs, options = sweep.runs(), sweep.options
    todo = [run for run in runs if run.status in only and not find_reusable(run, options.reuse)]
    names = {"recipe": sweep.recipe, "scale": sweep.scale, "folder": str(sweep.folder)}
    print_estimate(names, len(runs), todo, options.workers, as_json)


def print_estimate(
    names: dict[str, str],
    experiments: int,
    todo: "Sequence[PlannedRun]",
    workers: int,
    as_json: bool,
    first: "Callable[[Costs], tuple[float, float] | None]" = lambda costs: None,
) -> None:
    """Measure how long some of so many experiments will take and print it below the names.

    `first` estimates a first answer.
    """
    from mecheval.sweeps.estimate import Costs, estimate
    from mecheval.terminal import tables as terminal
    from mecheval.terminal.sweep_view import estimate_table

    with terminal.working("measuring a few steps of every kind"):
        costs = Costs.measure(todo)
        taken, answer = estimate(todo, workers, costs), first(costs)
    if as_json:
        counts = {"experiments": experiments, "finished": experiments - len(todo)}
        early = {"first_answer_seconds": answer} if answer else {}
        print_json({**names, **counts, "workers": workers, **early, **vars(taken)})
        return
    rest = "" if taken.measured == taken.shapes else "; others in proportion to their size"
    total = terminal.duration(taken.fewest_seconds, taken.seconds)
    one_core = terminal.clock(taken.core_seconds)
    screen = terminal.console()
    screen.print(terminal.title(*names.values()))
    screen.print(estimate_table(taken.groups))
    screen.print(
        f"{experiments} experiments, {len(todo)} to run · {total} with {workers} workers, "
        f"at most about {one_core} of one core",
        f"{taken.measured} of {taken.shapes} kinds of run were measured now{rest}",
        sep="\n",
    )
    if answer:
        screen.print(f"a first answer is there after {terminal.duration(*answer)}")


def _submit(sweep: "Sweep", only: Sequence[str], workers: int | None, as_json: bool) -> None:
    from mecheval.sweeps.slurm import submit

    arrays, runs = submit(sweep, only, workers)
    if as_json:
        print_json({"folder": str(sweep.folder), "arrays": arrays, "runs": runs})
    elif arrays:
        hint = f"'mecheval sweep status {sweep.folder}' shows them"
        print(f"submitted {runs} runs to Slurm as array {', '.join(arrays)}; {hint}")
    else:
        print("nothing to run")
