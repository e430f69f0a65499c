"""`mecheval intervene`: interventions on a finished run, or on a model of transformers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from mecheval.cli.app import Json, Plugins, app, load, print_json, whole, without_nan
from mecheval.cli.hub import (
    Keep,
    Shots,
    TaskInWords,
    Template,
    WordList,
    ask,
    intervene_deep,
    is_deep,
    refuse_options,
)
from mecheval.cli.show import Device, Download, Dtype, Where
from mecheval.core.errors import InvalidInput
from mecheval.core.spec import is_hub_name

SITES = "where to intervene (default: every block, mixer and MLP)"
METRICS = "metric of the table: likelihood, accuracy, logit, kl, share; with a swap counterfactual"
Sites = Annotated[list[str] | None, typer.Option("--site", metavar="SITE", help=SITES)]
Roles = Annotated[
    list[str] | None,
    typer.Option("--role", metavar="ROLE", help="token: a role, value+1 or @5"),
]
SUBJECT = "the folder of a finished run, or hf:FOLDER, hf:FILE.gguf or hf:NAME"
RUN = "runs/recall-mamba-4397277d5006e1eb"


def _integer(text: str, metavar: str = "INTEGER") -> Any:
    return typer.Option(parser=whole, metavar=metavar, help=text)


@app.command(epilog=f"Example: mecheval intervene {RUN} --site blocks.0.mixer.conv_out")
def intervene(
    run: Annotated[str, typer.Argument(metavar="RUN", help=SUBJECT)],
    task: TaskInWords = None,
    *,
    site: Sites = None,
    role: Roles = None,
    corrupt: Annotated[str, typer.Option(help="variable to corrupt: key, value, query, …")] = "key",
    kind: Annotated[str, typer.Option(help="corruption: resample, swap or yours")] = "resample",
    condition: Annotated[str, typer.Option(help="restored, ablated or control")] = "restored",
    metric: Annotated[str, typer.Option(help=METRICS)] = "likelihood",
    documents: Annotated[int, _integer("number of test documents")] = 320,
    document: Annotated[int | None, _integer("a single one, at all its positions")] = None,
    memory: Annotated[int, _integer("activations at a time, roughly", "MB")] = 256,
    words: WordList = "nouns",
    template: Template = "rows",
    shots: Shots = 0,
    keep: Keep = None,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    download: Download = False,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Replace activations at every site and role, and show how much of the answer comes back.

    A model of transformers is asked TASK in its own words, by default recall of 4 pairs that are
    read twice, and every layer's input is restored.
    """
    from mecheval.core.options import validate
    from mecheval.interventions.grid import GridOptions

    names = {"corrupt": corrupt, "kind": kind, "condition": condition, "metric": metric}
    numbers = {"documents": documents, "document": document, "memory": memory}
    places = {"site": site, "role": role}
    load(plugin)
    options = GridOptions(**validate(GridOptions, {**places, **names, **numbers}))
    if is_hub_name(run):
        model, asked = ask(run, task, words, template, shots, Where(dtype, device, download))
        if is_deep(options, asked):
            intervene_deep(run, model, asked, options, words, keep, as_json)
        else:
            _intervene(run, (run, words), model, asked, options, 0, 0, as_json)
        return
    if not Path(run).is_dir():
        raise InvalidInput(f"RUN={run!r} must be the folder of a finished run, or hf:PATH")
    if task is not None:
        raise InvalidInput(f"TASK={task} is for models of transformers; a run has its own task")
    of_hub = {"words": words, "template": template, "shots": shots, "keep": keep}
    of_hub |= {"dtype": dtype, "device": device, "download": download}
    refuse_options(intervene, of_hub, "models of transformers", "a run")
    from mecheval.runs.finished import Run

    finished = Run(Path(run))
    experiment = finished.experiment
    title = experiment.task_spec, experiment.model.architecture
    steps, seed = finished.outcome["steps"], experiment.seed
    _intervene(run, title, finished.load_model(), experiment.task, options, steps, seed, as_json)


def _intervene(
    run: str,
    names: Sequence[str],
    model: Any,
    task: Any,
    options: Any,
    steps: int,
    seed: int,
    as_json: bool,
) -> None:
    """Measure a grid and print it."""
    from mecheval.interventions.grid_eval import evaluate_grid
    from mecheval.tasks.sample import sample
    from mecheval.terminal import grid_view, tables
    from mecheval.terminal.documents import legend

    metric, document, kind = options.metric, options.document, options.kind
    with grid_view.progress(" · ".join(names)) as progress:
        result = evaluate_grid(model, task, options, seed=seed, progress=progress)
    if result.grid is None:
        raise InvalidInput(result.reason or "")
    if metric not in {*result.grid.clean, "share"}:
        problem = f"kind={kind} leaves documents without an answer"
        raise InvalidInput(f"metric={metric} needs an answer of each corrupted document; {problem}")
    rows = [row.to_dict() for row in result.grid.rows(steps)]
    verdict = result.verdict.to_dict() if result.verdict else None
    record = None
    if document is not None:
        (record,) = sample(task, 1, seed, "test", document, result.grid.corrupted, kind)
    if as_json:
        answer: dict[str, Any] = {"document": record.to_dict()} if record else {"verdict": verdict}
        if result.reason:
            answer["no_verdict"] = result.reason
        print_json({"run": run, "rows": [without_nan(row) for row in rows], **answer})
        return
    console = tables.console()
    corruption = f"{result.grid.corrupted} corrupted by {kind}"
    console.print(tables.title(*names, corruption))
    if record:
        console.print(legend(record.roles), "", sep="\n")
        console.print(grid_view.heat_map(record, rows, metric, console.width))
        return
    console.print(grid_view.grid(rows, metric), "")
    if verdict:
        console.print(tables.verdict(verdict))
    if result.reason:
        console.print(f"no verdict: {result.reason}")
