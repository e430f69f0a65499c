"""`mecheval claims`: which claims hold for which runs."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mecheval.cli.app import AllowDamaged, Json, app, print_json, say_damaged

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mecheval.report.claims import Claim, Finding

Folders = Annotated[
    list[Path],
    typer.Argument(metavar="DIR", help="sweeps, kept studies, or folders that contain them"),
]


@app.command(epilog="Example: mecheval claims runs")
def claims(folders: Folders, allow_damaged: AllowDamaged = False, as_json: Json = False) -> None:
    """Say which claims hold for the runs of their recipes: fixed rules, intervals over seeds."""
    from mecheval.report.claims import all_claims, check_studies, read_studies, to_records

    known, studies = all_claims(), read_studies(folders)
    findings = check_studies(known, studies)
    if as_json:
        print_json(to_records(findings))
    else:
        _print(findings, known)
    say_damaged([line for study in studies for line in study.damaged], allow_damaged)


def _print(findings: "Sequence[Finding]", known: "Sequence[Claim]") -> None:
    from mecheval.terminal import tables as terminal

    console = terminal.console()
    for part in _lines(findings):
        console.print(part)
    checked = [finding.claim for finding in findings]
    missing = dict.fromkeys(claim.recipe for claim in known if claim not in checked)
    if missing:
        command = f"mecheval sweep run {next(iter(missing))} --scale small"
        console.print(f"no runs of {', '.join(missing)}; '{command}' makes them")


def _lines(findings: "Sequence[Finding]") -> "Iterator[RenderableType]":
    from rich.table import Table
    from rich.text import Text

    for finding in findings:
        claim = finding.claim
        runs = f"{claim.recipe}, scale {finding.scale}"
        yield Text(f"{claim.name} · {claim.where} · {runs}: {finding.answer}", "bold")
        yield Text(claim.says)
        table = Table(box=None, pad_edge=False, show_header=False)
        for number in finding.numbers:
            cells = (number.what, str(number), number.bound, number.answer)
            table.add_row(*map(Text, cells))
        yield table
        yield ""
