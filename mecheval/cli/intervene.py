"""`mecheval intervene`: interventions on a finished run."""

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from mecheval.cli.app import Json, Plugins, app, load, print_json, whole
from mecheval.core.errors import InvalidInput

SITES = "where to intervene (default: every block, mixer and MLP)"
METRICS = "metric of the table: likelihood, accuracy, logit, kl, share; with a swap counterfactual"
Sites = Annotated[list[str] | None, typer.Option("--site", metavar="SITE", help=SITES)]
Roles = Annotated[
    list[str] | None,
    typer.Option("--role", metavar="ROLE", help="token: a role, value+1 or @5"),
]
RUN = "runs/recall-mamba-4397277d5006e1eb"


def _integer(text: str, metavar: str = "INTEGER") -> Any:
    return typer.Option(parser=whole, metavar=metavar, help=text)


@app.command(epilog=f"Example: mecheval intervene {RUN} --site blocks.0.mixer.conv_out")
def intervene(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a finished run")],
    site: Sites = None,
    role: Roles = None,
    corrupt: Annotated[str, typer.Option(help="variable to corrupt: key, value, query, …")] = "key",
    kind: Annotated[str, typer.Option(help="corruption: resample, swap or yours")] = "resample",
    condition: Annotated[str, typer.Option(help="restored, ablated or control")] = "restored",
    metric: Annotated[str, typer.Option(help=METRICS)] = "likelihood",
    documents: Annotated[int, _integer("number of test documents")] = 320,
    document: Annotated[int | None, _integer("a single one, at all its positions")] = None,
    memory: Annotated[int, _integer("activations at a time, roughly", "MB")] = 256,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Replace activations at every site and role, and show how much of the answer comes back."""
    from mecheval.core.options import validate
    from mecheval.interventions.grid import GridOptions

    words = {"corrupt": corrupt, "kind": kind, "condition": condition, "metric": metric}
    numbers = {"documents": documents, "document": document, "memory": memory}
    places = {"site": site, "role": role}
    load(plugin)
    options = GridOptions(**validate(GridOptions, {**places, **words, **numbers}))
    if not run.is_dir():
        raise InvalidInput(f"RUN={str(run)!r} must be the folder of a finished run")
    from mecheval.interventions.grid_eval import evaluate_grid
    from mecheval.runs.finished import Run
    from mecheval.tasks.sample import sample
    from mecheval.terminal import grid_view, tables
    from mecheval.terminal.documents import legend

    finished = Run(run)
    model, experiment = finished.load_model(), finished.experiment
    task, seed = experiment.task, experiment.seed
    names = experiment.task_spec, experiment.model.architecture
    with grid_view.progress(" · ".join(names)) as progress:
        result = evaluate_grid(model, task, options, seed=seed, progress=progress)
    if result.grid is None:
        raise InvalidInput(result.reason or "")
    if metric not in {*result.grid.clean, "share"}:
        problem = f"kind={kind} leaves documents without an answer"
        raise InvalidInput(f"metric={metric} needs an answer of each corrupted document; {problem}")
    rows = [row.to_dict() for row in result.grid.rows(finished.outcome["steps"])]
    verdict = result.verdict.to_dict() if result.verdict else None
    record = None
    if document is not None:
        (record,) = sample(task, 1, seed, "test", document, result.grid.corrupted, kind)
    if as_json:
        answer: dict[str, Any] = {"document": record.to_dict()} if record else {"verdict": verdict}
        if result.reason:
            answer["no_verdict"] = result.reason
        print_json({"run": str(run), "rows": [_without_nan(row) for row in rows], **answer})
        return
    console = tables.console()
    console.print(tables.title(*names, f"{result.grid.corrupted} corrupted by {kind}"))
    if record:
        console.print(legend(record.roles), "", sep="\n")
        console.print(grid_view.heat_map(record, rows, metric, console.width))
        return
    console.print(grid_view.grid(rows, metric), "")
    if verdict:
        console.print(tables.verdict(verdict))
    if result.reason:
        console.print(f"no verdict: {result.reason}")


def _without_nan(row: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN, which JSON does not have, by None: no document has the token."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in row.items()
    }
