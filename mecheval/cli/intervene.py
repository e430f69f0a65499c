"""Interventions on a finished run."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mecheval.cli.app import Json, Plugins, app, load, print_json, whole

Places = Annotated[list[str] | None, typer.Option("--role", metavar="ROLE", help="at which token: a role, value+1, @5")]
Sites = Annotated[
    list[str] | None, typer.Option("--site", metavar="SITE", help="where; if left out at every block, mixer and MLP")
]


@app.command(epilog="Example: mecheval intervene runs/recall-mamba-4397277d5006e1eb --site blocks.0.mixer.conv_out")
def intervene(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a finished run")],
    site: Sites = None,
    role: Places = None,
    corrupt: Annotated[str, typer.Option(help="what is made wrong: key, value or query")] = "key",
    kind: Annotated[str, typer.Option(help="how: resample or swap")] = "resample",
    condition: Annotated[str, typer.Option(help="restored, ablated or control")] = "restored",
    documents: Annotated[int, typer.Option(parser=whole, metavar="INTEGER", help="of test")] = 320,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Puts activations of one run into another, at every site and role, and says what comes back."""
    from mecheval.interventions.options import GridOptions

    options: Any = {"corrupt": corrupt, "kind": kind, "condition": condition, "documents": documents}
    GridOptions(**options)
    load(plugin)
    from mecheval.interventions.interchange import ROLES, interchange
    from mecheval.metrics.mechanism import judged
    from mecheval.metrics.restoration import rows
    from mecheval.trained import trained

    model, experiment, found = trained(run)
    options["conditions"] = [options.pop("condition")]
    grid = interchange(model, experiment.documents, site, role or ROLES, seed=experiment.seed, **options)
    measured = [row.to_dict() for row in rows(grid, found.outcome["steps"])]
    verdict = judged(grid, experiment.model.layers)
    if as_json:
        print_json({"run": str(run), "rows": measured, "verdict": verdict.to_dict() if verdict else None})
        return
    from mecheval import terminal

    console = terminal.console()
    console.print(terminal.title(experiment.task, experiment.model.architecture, f"{corrupt} corrupted by {kind}"))
    console.print(terminal.grid(measured), "")
    if verdict:
        console.print(terminal.verdict(verdict.to_dict()))
