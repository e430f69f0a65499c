"""Sweeps: run the experiments of a recipe, show their status, retry those that failed."""

import sys
from collections.abc import Callable, Sequence
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
from mecheval.cli.sweep_actions import Launch, SweepLaunch, be_nice, print_rows, sweep_summary
from mecheval.core.errors import InvalidInput

if TYPE_CHECKING:
    from mecheval.runs.experiment import Experiment
    from mecheval.sweeps.options import SweepOptions

    Prepared = tuple[Callable[[], Any], Callable[[Any, SweepOptions], Launch]]


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
_NICE = "leave the processor to everything else"
Nice = Annotated[bool, typer.Option("--nice", help=_NICE)]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="the folder of a sweep")]
_RECIPE = "whose experiments; 'mecheval list recipes' shows all"
_SCALE = "quick (if left out), small, laptop or paper"
_OUT = "folder of the runs; default: runs/RECIPE-SCALE, or runs/queue"
_QUEUE = "run what is not kept yet of the studies in a file, and keep them beside it"


def _launch(
    only: Sequence[str],
    prepare: Callable[[], Any],
    build: "Callable[[Any, SweepOptions], Launch]",
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
    nice: Nice = False,
    as_json: Json = False,
) -> None:
    """Run, submit or estimate the experiments whose status is in `only`.

    `build` makes what is launched of what `prepare` returns; the problems of both and of the
    options are reported together.
    """
    load(plugin)
    limits = {"timeout": timeout, "save_every": save_every, "shuffle": shuffle}
    options, prepared, _ = all_of(
        lambda: _options(workers, device, plugin, reuse, **limits),
        prepare,
        lambda: _check_where(ray, slurm, nice),
    )
    launch = build(prepared, options)
    if ray is None and not slurm:
        options.check_device()
    if nice:
        be_nice()
    if dry_run:
        launch.estimate(only, as_json)
    elif slurm:
        launch.submit(only, workers, as_json)
    else:
        launch.execute(only, ray, not no_report, as_json)


_EXAMPLES = """Example: mecheval sweep run --queue docs/results/queue.toml --nice

Example: mecheval sweep run emergence --scale quick"""


@sweep_app.command(epilog=_EXAMPLES)
@takes_options_of(_launch)
def run(
    recipe: Annotated[str | None, typer.Argument(metavar="[RECIPE]", help=_RECIPE)] = None,
    scale: Annotated[str | None, typer.Option(help=_SCALE)] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help=_OUT)] = None,
    queue: Annotated[Path | None, typer.Option(metavar="FILE.toml", help=_QUEUE)] = None,
    **options: Any,
) -> None:
    """Run the experiments of a recipe, or of a queue of studies, that are not finished.

    A recipe ends by writing figure and report into the folder. Rerun the same command to resume.
    """
    from mecheval.sweeps.sweep import OPEN

    if queue is None:
        prepare, build = _of_recipe(recipe, scale or "quick", out)
    elif recipe or scale:
        given = "RECIPE" if recipe else "--scale"
        raise InvalidInput(f"{given} and --queue cannot be used both; leave one of them out")
    else:
        prepare, build = _of_queue(queue, out)
    _launch(OPEN, prepare, build, **options)


def _of_recipe(recipe: str | None, scale: str, out: Path | None) -> "Prepared":
    from mecheval.sweeps.sweep import Sweep

    if recipe is None:
        raise InvalidInput("RECIPE is missing; give one, or --queue FILE.toml")
    folder = out or Path("runs") / f"{recipe}-{scale}"

    def build(experiments: "list[Experiment]", options: "SweepOptions") -> Launch:
        return SweepLaunch(Sweep(experiments, folder, recipe, scale, options))

    return lambda: _experiments(recipe, scale), build


def _of_queue(path: Path, out: Path | None) -> "Prepared":
    from mecheval.cli.sweep_queue import QueueLaunch
    from mecheval.sweeps.queue import Queue

    folder = out or Path("runs") / "queue"
    return lambda: Queue.read(path), lambda queue, options: QueueLaunch(queue, folder, options)


@sweep_app.command(epilog="Example: mecheval sweep status runs/emergence-quick")
def status(folder: Folder, as_json: Json = False) -> None:
    """Show the status of every experiment of a sweep."""
    from mecheval.results.plan import Plan
    from mecheval.results.table import Results
    from mecheval.sweeps.planned import read_progress
    from mecheval.sweeps.queue_sweep import is_of_queue

    plan = Plan.require(folder)
    results = Results(folder)
    rows = plan.states(results)
    others = plan.unplanned(results)
    if others and not is_of_queue(plan):  # a queue plans what is not kept yet
        print(f"warning: {others}", file=sys.stderr)
    for row in rows:
        if row["status"] == "running":
            row |= read_progress(Path(row["folder"]))
    if as_json:
        print_json(sweep_summary(plan, folder, rows))
    else:
        from mecheval.terminal.sweep_view import failures

        print_rows(plan, folder, rows)
        print(*failures(rows), sep="\n")


@sweep_app.command(epilog="Example: mecheval sweep retry runs/emergence-quick")
@takes_options_of(_launch)
def retry(folder: Folder, **options: Any) -> None:
    """Run the failed and the stopped experiments of a sweep again."""
    from mecheval.results.plan import Plan
    from mecheval.sweeps.sweep import AGAIN, Sweep

    def build(plan: Plan, options: "SweepOptions") -> Launch:
        return SweepLaunch(Sweep.read(folder, options))

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
    from mecheval.sweeps.options import SweepOptions, cores

    files, folders = tuple(map(str, plugins or ())), tuple(reuse or ())
    count = cores() if workers is None else workers
    others["device"] = validated_device(device)
    return SweepOptions(workers=count, plugins=files, reuse=folders, **others)


def _experiments(recipe: str, scale: str) -> "list[Experiment]":
    from mecheval.sweeps.recipe import get_experiments, get_scale, recipes

    _, size = all_of(lambda: recipes.get(recipe), lambda: get_scale(scale))
    return get_experiments(recipe, size)


def _check_where(ray: str | None, slurm: bool, nice: bool) -> None:
    from mecheval.sweeps.ray import check_address

    if nice and (slurm or ray is not None):
        given = "--slurm" if slurm else "--ray"
        raise InvalidInput(f"--nice and {given} cannot be used both: the cluster has priorities")
    if slurm and ray is not None:
        raise InvalidInput("--ray and --slurm cannot be used both; choose one")
    if ray is not None:
        check_address(ray)
