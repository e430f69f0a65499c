"""Sweeps: the experiments of a recipe that are not done yet."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mecheval.cli.app import Json, Plugins, all_of, app, load, print_json, whole
from mecheval.core.errors import InvalidInput, RunFailed

if TYPE_CHECKING:
    from mecheval.runs.experiment import Experiment
    from mecheval.sweeps.agenda import Agenda
    from mecheval.sweeps.sweep import Crew

Workers = Annotated[
    int | None, typer.Option(parser=whole, metavar="INTEGER", help="processes at once; all cores if left out")
]
VERBS = ("status", "retry")  # no recipe has such a name


@app.command(epilog="Example: mecheval sweep figure3 --scale quick")
def sweep(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="whose experiments ('list recipes' has them); or status, or retry")
    ],
    folder: Annotated[Path | None, typer.Argument(metavar="[DIR]", help="status, retry: a sweep's folder")] = None,
    scale: Annotated[str, typer.Option(help="quick, small, laptop or paper")] = "quick",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="where the runs are; runs/RECIPE-SCALE if left out")
    ] = None,
    workers: Workers = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="the longest a run may take")] = None,
    save_every: Annotated[float, typer.Option(metavar="SECONDS", help="between checkpoints")] = 30.0,
    shuffle: Annotated[
        int | None, typer.Option(parser=whole, metavar="SEED", help="start the runs in another order")
    ] = None,
    ray: Annotated[str | None, typer.Option(metavar="ADDRESS", help="on a Ray cluster: its address, or local")] = None,
    slurm: Annotated[bool, typer.Option("--slurm", help="submit an array to Slurm, and return")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what it would take, write nothing")] = False,
    reuse: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="take over runs of the same experiments from this folder")
    ] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Runs the experiments of a recipe that are not done yet; the same command goes on after a kill.

    'sweep status DIR' says how they stand, 'sweep retry DIR' runs again those that failed.
    """
    from mecheval.runs.pending import FAILED
    from mecheval.sweeps.agenda import Agenda, SweepOptions
    from mecheval.sweeps.sweep import OPEN

    wanted: dict[str, Any] = {"workers": workers, "timeout": timeout, "save_every": save_every, "shuffle": shuffle}
    given = {name: value for name, value in wanted.items() if value is not None}
    load(plugin)
    options, place, experiments, _ = all_of(
        lambda: SweepOptions(**given, plugins=tuple(map(str, plugin or [])), reuse=tuple(reuse or ())),
        lambda: _place(recipe, folder, out, scale),
        lambda: _experiments(recipe, scale),
        lambda: _one_way(ray, slurm),
    )
    if recipe == "status":
        _print_status(place, as_json)
        return
    agenda = Agenda.of(place, options) if recipe == "retry" else Agenda(experiments, place, recipe, scale, options)
    only = FAILED if recipe == "retry" else OPEN
    if dry_run:
        _print_estimate(agenda, only, as_json)
    elif slurm:
        _submit(agenda, only, workers, as_json)
    else:
        _carry_out(agenda, only, ray, as_json)


def _place(recipe: str, folder: Path | None, out: Path | None, scale: str) -> Path:
    if recipe in VERBS:
        if folder is None or out is not None:
            raise InvalidInput(
                f"'sweep {recipe}' must name a DIR and no --out, as in 'sweep {recipe} runs/figure3-quick'"
            )
        if not folder.is_dir():
            raise InvalidInput(f"DIR={str(folder)!r} must be a folder with runs")
        return folder
    if folder is not None:
        raise InvalidInput(f"DIR={str(folder)!r} must come with status or retry; a new sweep takes --out DIR")
    return out or Path("runs") / f"{recipe}-{scale}"


def _one_way(ray: str | None, slurm: bool) -> None:
    from mecheval.sweeps.ray import check_address

    if slurm and ray is not None:
        raise InvalidInput("--ray and --slurm must not both be given")
    if ray is not None:
        check_address(ray)


def _experiments(recipe: str, scale: str) -> "list[Experiment]":
    if recipe in VERBS:
        return []
    from mecheval.paper.recipes import named, scale_named

    found, size = all_of(lambda: named(recipe), lambda: scale_named(scale))
    return found.experiments(size)


def _carry_out(agenda: "Agenda", only: Sequence[str], ray: str | None, as_json: bool) -> None:
    from mecheval.sweeps.sweep import carry_out
    from mecheval.terminal.sweep_view import board, failures

    with board(agenda.options.workers) as watch, _crew(agenda, ray) as crew:
        found = [state.to_dict() for state in carry_out(agenda, crew, only, watch)]
    _print_states(agenda.recipe, agenda.scale, agenda.folder, found, as_json)
    if failed := failures(found):
        again = f"{len(failed)} of {len(found)} runs failed; 'mecheval sweep retry {agenda.folder}' tries again"
        raise RunFailed("\n".join([*failed, again]))


@contextmanager
def _crew(agenda: "Agenda", ray: str | None) -> "Iterator[Callable[[], Crew]]":
    """How to come by it: workers of this machine get ready at once, a cluster is asked if there is work."""
    from mecheval.sweeps.local import Local

    if ray is None:
        local = Local(agenda.options.workers)
        try:
            yield lambda: local
        finally:
            local.stop()
        return
    from mecheval.sweeps.ray import Cluster

    yield lambda: Cluster(ray, agenda.options.workers)


def _print_status(place: Path, as_json: bool) -> None:
    from mecheval.results.plan import Plan
    from mecheval.results.table import Results
    from mecheval.sweeps.state import progress

    plan = Plan.read(place)
    if plan is None:
        raise InvalidInput(f"DIR={str(place)!r} must be the folder of a sweep; it has no plan")
    found = plan.states(Results(place))
    found = [{**state, **(progress(Path(state["folder"])) if state["status"] == "running" else {})} for state in found]
    _print_states(plan.recipe, plan.scale, place, found, as_json)
    if not as_json:
        from mecheval.terminal.sweep_view import failures

        print(*failures(found), sep="\n")


def _print_states(recipe: str, scale: str, place: Path, found: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        counts = Counter(state["status"] for state in found)
        print_json({"recipe": recipe, "scale": scale, "folder": str(place), "counts": counts, "runs": found})
        return
    from mecheval.terminal import sweep_view as board
    from mecheval.terminal import tables as terminal

    console = terminal.console()
    console.print(terminal.title(recipe, scale, str(place)))
    console.print(board.cells(found, len(found)), board.summary(found))


def _print_estimate(agenda: "Agenda", only: Sequence[str], as_json: bool) -> None:
    from mecheval.sweeps.estimate import estimate
    from mecheval.sweeps.reuse import offered
    from mecheval.terminal import sweep_view as board
    from mecheval.terminal import tables as terminal

    states = agenda.states()
    todo = [state for state in states if state.status in only and not offered(state, agenda.options.reuse)]
    with terminal.working("measuring a few steps of every kind"):
        found = estimate(todo, agenda.options.workers)
    counts = {"experiments": len(states), "finished": len(states) - len(todo), "workers": agenda.options.workers}
    if as_json:
        names = {"recipe": agenda.recipe, "scale": agenda.scale, "folder": str(agenda.folder)}
        print_json({**names, **counts, **vars(found)})
        return
    console = terminal.console()
    console.print(terminal.title(agenda.recipe, agenda.scale, str(agenda.folder)))
    console.print(board.estimate_table(found.groups))
    console.print(
        f"{len(states)} experiments, {len(todo)} to run · at most about {terminal.clock(found.seconds)} with "
        f"{agenda.options.workers} workers, {terminal.clock(found.core_seconds)} of one core",
        f"from steps, evaluations and interventions of {found.measured} of {found.shapes} kinds, measured now"
        + ("" if found.measured == found.shapes else "; the others in proportion to their size"),
        sep="\n",
    )


def _submit(agenda: "Agenda", only: Sequence[str], workers: int | None, as_json: bool) -> None:
    from mecheval.sweeps.slurm import submit

    arrays, runs = submit(agenda, only, workers)
    if as_json:
        print_json({"folder": str(agenda.folder), "arrays": arrays, "runs": runs})
    elif arrays:
        print(f"{runs} runs in Slurm's array {', '.join(arrays)}; 'mecheval sweep status {agenda.folder}' shows them")
    else:
        print("nothing to run")
