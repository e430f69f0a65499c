"""Interventions on a finished run."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mecheval.cli.app import Json, Plugins, app, load, print_json, whole
from mecheval.core.errors import InvalidInput

if TYPE_CHECKING:
    from mecheval.interventions.options import GridOptions
    from mecheval.runs.experiment import Experiment
    from mecheval.tasks.sample import Record

Places = Annotated[list[str] | None, typer.Option("--role", metavar="ROLE", help="at which token: a role, value+1, @5")]
Sites = Annotated[
    list[str] | None, typer.Option("--site", metavar="SITE", help="where; if left out at every block, mixer and MLP")
]
NEAR = 10  # other documents that are named when one cannot be shown


@app.command(epilog="Example: mecheval intervene runs/recall-mamba-4397277d5006e1eb --site blocks.0.mixer.conv_out")
def intervene(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a finished run")],
    site: Sites = None,
    role: Places = None,
    corrupt: Annotated[str, typer.Option(help="what is made wrong: key, value or query")] = "key",
    kind: Annotated[str, typer.Option(help="how: resample or swap")] = "resample",
    condition: Annotated[str, typer.Option(help="restored, ablated or control")] = "restored",
    metric: Annotated[
        str, typer.Option(help="the table's: likelihood, accuracy, logit, kl, share; of a swap also counterfactual")
    ] = "likelihood",
    documents: Annotated[int, typer.Option(parser=whole, metavar="INTEGER", help="how many, of test")] = 320,
    document: Annotated[
        int | None, typer.Option(parser=whole, metavar="INTEGER", help="one of test instead, at all its positions")
    ] = None,
    memory: Annotated[int, typer.Option(parser=whole, metavar="MB", help="of activations at a time, roughly")] = 256,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Puts activations of one run into another, at every site and role, and says what comes back."""
    from mecheval.core.options import validate
    from mecheval.interventions.options import GridOptions

    wanted: dict[str, Any] = {"role": role, "corrupt": corrupt, "kind": kind, "condition": condition, "metric": metric}
    wanted |= {"documents": documents, "document": document, "memory": memory}
    options = GridOptions(**validate(GridOptions, wanted))
    if not run.is_dir():
        raise InvalidInput(f"RUN={str(run)!r} must be the folder of a finished run")
    load(plugin)
    from mecheval.interventions.grid import layers_of
    from mecheval.interventions.grid_eval import lacking
    from mecheval.interventions.restoration import rows
    from mecheval.interventions.verdict import judged
    from mecheval.models.site import sites
    from mecheval.runs.trained import trained
    from mecheval.terminal import grid_view as pictures
    from mecheval.terminal import tables as terminal
    from mecheval.terminal.documents import legend

    model, experiment, found = trained(run)
    record = _record(experiment, options)
    with pictures.progress(f"{experiment.task_spec} · {experiment.model.architecture}") as told:
        grid = _grid(model, experiment, site, options, told)
    measured = [row.to_dict() for row in rows(grid, found.outcome["steps"])]
    verdict = None if record else judged(grid, layers_of(sites(model)))
    why = {} if record or verdict or not (reason := lacking(model)) else {"no_verdict": reason}
    if as_json:
        shown = {"document": record.to_dict()} if record else {"verdict": verdict.to_dict() if verdict else None}
        print_json({"run": str(run), "rows": [_plain(row) for row in measured], **shown, **why})
        return
    console = terminal.console()
    console.print(terminal.title(experiment.task_spec, experiment.model.architecture, f"{corrupt} corrupted by {kind}"))
    if record:
        console.print(legend(), "", sep="\n")
        console.print(pictures.heat_map(record, measured, metric, console.width))
        return
    console.print(pictures.grid(measured, metric), "")
    if verdict:
        console.print(terminal.verdict(verdict.to_dict()))
    for reason in why.values():
        console.print(f"no verdict: {reason}")


def _grid(model: Any, experiment: "Experiment", sites: list[str] | None, options: "GridOptions", told: Any) -> Any:
    from mecheval.interventions.interchange import ROLES, interchange
    from mecheval.interventions.positions import every_position

    task, seed, roles, documents, start = experiment.task, experiment.seed, options.role, options.documents, 0
    if options.document is not None:
        start, documents = options.document, 1
        roles = every_position(task.documents(seed, "test", start, start + 1))
    return interchange(
        model,
        task,
        sites,
        roles or ROLES,
        corrupt=options.corrupt,
        kind=options.kind,
        conditions=[options.condition],
        documents=documents,
        start=start,
        seed=seed,
        memory=options.memory * 2**20,
        progress=told,
    )


def _record(experiment: "Experiment", options: "GridOptions") -> "Record | None":
    """The document that is asked for, if one is; it must lose its answer."""
    from mecheval.tasks.sample import sample

    if options.document is None:
        return None
    task, seed, how = experiment.task, experiment.seed, (options.corrupt, options.kind)
    (record,) = sample(task, 1, seed, "test", options.document, *how)
    if not record.corrupted.usable:
        first = max(0, options.document - NEAR)
        usable = [near.index for near in sample(task, 2 * NEAR, seed, "test", first, *how) if near.corrupted.usable]
        shown = f"documents {', '.join(map(str, usable))} do" if usable else "nor do those around it"
        raise InvalidInput(f"document={record.index} must lose its answer when its {how[0]} is corrupted; {shown}")
    return record


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: null where no document has the token."""
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}
