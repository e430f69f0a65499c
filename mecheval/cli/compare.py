"""Groups of runs against one another, over seeds."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mecheval.cli.app import Json, app, print_json

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from mecheval.report.compare import Comparison


@app.command(epilog="Example: mecheval compare runs --by architecture")
def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR", help="folders with runs")],
    by: Annotated[str, typer.Option(metavar="FIELD", help="what the groups differ in: model.d_model, …")] = (
        "architecture"
    ),
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="accuracy, likelihood, loss or share; the first two if left out"),
    ] = None,
    role: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="share: restored where; key, value, next_key or query")
    ] = None,
    correction: Annotated[str, typer.Option(metavar="NAME", help="for many comparisons: holm, fdr or none")] = "holm",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="a forest plot: png pdf svg json csv html")
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="print CSV")] = False,
    as_json: Json = False,
) -> None:
    """Says whether groups of runs differ by more than their seeds do: differences, intervals, corrected p."""
    from mecheval.report import compare as contrasts

    if out:
        from mecheval.report.files import check_ending

        check_ending(out)
    wanted: Any = {"metrics": metric or ("accuracy", "likelihood"), "roles": role or (), "correction": correction}
    found = contrasts.compare(*folders, by=by, **wanted)
    if out:
        from mecheval.report.files import save
        from mecheval.report.parts.forest import forest

        save(forest(found), out)
    if as_json:
        from mecheval.report.files import records

        facts = {"by": found.by, "correction": found.correction, "runs": found.study.counts, "notes": found.notes}
        print_json({**facts, "groups": records(found.groups), "pairs": records(found.table)})
    elif csv:
        found.table.to_csv(sys.stdout, index=False)
    else:
        from mecheval.terminal import tables as terminal

        console = terminal.console()
        for part in _shown(found):
            console.print(part)
        if out:
            print(out)


def _shown(found: "Comparison") -> "Iterator[RenderableType]":
    """The groups of each setting, then its pairs metric by metric; below all what must be known."""
    from rich.table import Table
    from rich.text import Text

    from mecheval.terminal.tables import title

    for setting, pairs in found.table.groupby("setting", sort=False):
        yield title(str(setting))
        table = Table(found.by, "rate", "seeds", *found.panels, box=None, pad_edge=False)
        for line in found.groups[found.groups["setting"] == setting].to_dict("records"):
            rate = "–" if line["train.lr"] != line["train.lr"] else f"{line['train.lr']:g}"
            means = [_number(panel, line[panel]) for panel in found.panels]
            table.add_row(Text(line["group"]), rate, str(line["seeds"]), *means)
        yield table
        chances = {"p": "p"} | ({} if found.correction == "none" else {found.correction: "corrected_p"})
        for panel, own in pairs.groupby("panel", sort=False):
            yield ""
            table = Table(str(panel), "difference [95 %]", *chances, "seeds", "", box=None, pad_edge=False)
            for line in own.to_dict("records"):
                p = [f"{line[name]:.3f}" if line[name] >= 0.001 else "<.001" for name in chances.values()]
                seeds = f"{line['seeds_a']}" if line["paired"] else f"{line['seeds_a']}, {line['seeds_b']}"
                table.add_row(Text(f"{line['a']} − {line['b']}"), _difference(line), *p, seeds, line["answer"])
            yield table
        yield ""
    yield f"runs: {found.study.counted}"
    yield from map(Text, found.notes)


def _difference(line: dict[str, Any]) -> "Text":
    from rich.text import Text  # where [ opens no markup

    value, low, high = (_number(line["metric"], line[name], "+") for name in ("difference", "low", "high"))
    return Text(f"{value} [{low.rstrip('%')}, {high.rstrip('%')}]")


def _number(metric: str, value: float, sign: str = "") -> str:
    return "–" if value != value else f"{value:{sign}.3f}" if metric == "loss" else f"{value:{sign}.1%}"
