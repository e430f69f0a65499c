"""The paper's claims, asked of runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mecheval.cli.app import Json, app, print_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mecheval.report.claims import Finding


@app.command(epilog="Example: mecheval claims runs/figure3-quick")
def claims(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR", help="sweeps, kept studies, or folders of those")],
    as_json: Json = False,
) -> None:
    """Says which of the paper's claims hold for the runs of its recipes, by fixed rules, with intervals over seeds."""
    from mecheval.paper.claims import CLAIMS
    from mecheval.report.claims import asked, records

    findings = asked(CLAIMS, folders)
    if as_json:
        print_json(records(findings))
        return
    from mecheval.terminal import tables as terminal

    console = terminal.console()
    for part in _shown(findings):
        console.print(part)
    there = {finding.claim for finding in findings}
    if missing := dict.fromkeys(claim.recipe for claim in CLAIMS if claim not in there):
        console.print(
            f"no runs of {', '.join(missing)}: 'mecheval sweep run {next(iter(missing))} --scale small' makes them"
        )


def _shown(findings: "list[Finding]") -> "Iterator[RenderableType]":
    from rich.table import Table
    from rich.text import Text

    for finding in findings:
        claim = finding.claim
        yield Text(f"{claim.name} · {claim.where} · {claim.recipe}, scale {finding.scale}: {finding.answer}", "bold")
        yield Text(claim.says)
        table = Table(box=None, pad_edge=False, show_header=False)
        for number in finding.numbers:
            table.add_row(Text(number.what), Text(str(number)), Text(number.bound), Text(number.answer))
        yield table
        yield ""
