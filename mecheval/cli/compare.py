"""`mecheval compare`: groups of runs against one another, over seeds."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mecheval.cli.app import AllowDamaged, Json, app, print_json, say_damaged

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from mecheval.report.compare import Comparison


METRICS = "accuracy, likelihood, loss or share; the first two if left out"
ROLES = "where a share is restored: key, value, next_key or query"
FORMATS = "also draw a forest plot: png pdf svg json csv html"
CORRECTIONS = "correction for many comparisons: holm, fdr or none"


@app.command(epilog="Example: mecheval compare runs --by architecture")
def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR", help="folders with runs")],
    by: Annotated[
        str, typer.Option(metavar="FIELD", help="field in which groups differ: model.d_model, …")
    ] = "architecture",
    metric: Annotated[list[str] | None, typer.Option(metavar="NAME", help=METRICS)] = None,
    role: Annotated[list[str] | None, typer.Option(metavar="NAME", help=ROLES)] = None,
    correction: Annotated[str, typer.Option(metavar="NAME", help=CORRECTIONS)] = "holm",
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help=FORMATS)] = None,
    csv: Annotated[bool, typer.Option("--csv", help="print CSV")] = False,
    allow_damaged: AllowDamaged = False,
    as_json: Json = False,
) -> None:
    """Say whether groups of runs differ by more than their seeds: differences, intervals, p."""
    from mecheval.report.compare import compare

    if out:
        from mecheval.report.files import check_ending

        check_ending(out)
    metrics = metric or ("accuracy", "likelihood")
    result = compare(*folders, by=by, metrics=metrics, roles=role or (), correction=correction)
    if out:
        from mecheval.report.files import save
        from mecheval.report.parts.forest import forest

        save(forest(result), out)
    if as_json:
        from mecheval.report.files import records

        facts: Any = {"by": result.by, "correction": result.correction}
        facts |= {"runs": result.study.counts, "notes": result.notes}
        tables = {"groups": records(result.groups), "pairs": records(result.table)}
        print_json({**facts, **tables})
    elif csv:
        from mecheval.results.csv import to_csv

        sys.stdout.write(to_csv(result.table))
    else:
        from mecheval.terminal import tables as terminal

        console = terminal.console()
        for part in _report(result):
            console.print(part)
        if out:
            print(out)
    say_damaged(result.study.damaged, allow_damaged)


def _report(result: "Comparison") -> "Iterator[RenderableType]":
    """Yield the groups of each setting and its pairs, metric by metric; then the notes."""
    from rich.text import Text

    from mecheval.terminal.tables import title

    for setting, pairs in result.table.groupby("setting", sort=False):
        yield title(str(setting))
        yield _groups(result, str(setting))
        for panel, lines in pairs.groupby("panel", sort=False):
            yield ""
            yield _pairs(result, str(panel), lines.to_dict("records"))
        yield ""
    yield f"runs: {result.study.counted}"
    yield from map(Text, result.notes)


def _groups(result: "Comparison", setting: str) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(result.by, "rate", "seeds", *result.panels, box=None, pad_edge=False)
    groups = result.groups[result.groups["setting"] == setting]
    for line in groups.to_dict("records"):
        rate = "–" if line["train.lr"] != line["train.lr"] else f"{line['train.lr']:g}"
        means = [_number(panel, line[panel]) for panel in result.panels]
        table.add_row(Text(line["group"]), rate, str(line["seeds"]), *means)
    return table


def _pairs(result: "Comparison", panel: str, lines: list[dict[str, Any]]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    chances = {"p": "p"}
    if result.correction != "none":
        chances[result.correction] = "corrected_p"
    table = Table(panel, "difference [95 %]", *chances, "seeds", "", box=None, pad_edge=False)
    for line in lines:
        names = ("difference", "low", "high")
        value, low, high = (_number(line["metric"], line[name], "+") for name in names)
        difference = Text(f"{value} [{low.rstrip('%')}, {high.rstrip('%')}]")  # [ opens no markup
        p = [line[name] for name in chances.values()]
        p_texts = [f"{value:.3f}" if value >= 0.001 else "<.001" for value in p]
        seeds = f"{line['seeds_a']}" if line["paired"] else f"{line['seeds_a']}, {line['seeds_b']}"
        label = Text(f"{line['a']} − {line['b']}")
        table.add_row(label, difference, *p_texts, seeds, line["answer"])
    return table


def _number(metric: str, value: float, sign: str = "") -> str:
    if value != value:
        return "–"
    return f"{value:{sign}.3f}" if metric == "loss" else f"{value:{sign}.1%}"
