"""The mechanism card of a mixer."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mecheval.cli.app import Json, Plugins, app, print_json
from mecheval.cli.sweep import Workers
from mecheval.core.errors import RunFailed

if TYPE_CHECKING:
    from mecheval.cards.card import Card


@app.command(epilog="Example: mecheval card mamba:d_conv=2")
def card(
    subject: Annotated[
        str, typer.Argument(metavar="SUBJECT", help="file.py:Class, a mixer or an architecture, with options")
    ],
    scale: Annotated[str, typer.Option(help="quick, small, laptop or paper")] = "quick",
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="where the folders of runs are")] = Path("runs"),
    workers: Workers = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what it would take, write nothing")] = False,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Says on one page how a mixer recalls, beside attention and Mamba; about ten minutes on two cores, then at once.

    It is examined, trained on both tasks, looked into and judged. The same command goes on after a kill.
    """
    from mecheval.sweeps.sweep import SweepOptions

    options = SweepOptions() if workers is None else SweepOptions(workers=workers)
    files = [str(path) for path in plugin or []]
    from mecheval.cards.card import card as made
    from mecheval.terminal import tables as terminal

    if dry_run:
        _print_estimate(subject, scale, out, options.workers, files, as_json)
        return
    found = made(subject, scale, out, options.workers, files)
    if as_json:
        print_json(found.to_dict())
    else:
        console = terminal.console()
        console.print(
            terminal.title(found.facts["shown"], f"scale {found.facts['scale']}"), _table(found), "", sep="\n"
        )
        console.print(*(found.folder / name for name in ("card.html", "card.md")), sep="\n", soft_wrap=True)
    if found.failures:
        raise RunFailed("\n".join(found.failures))


def _table(found: "Card") -> Any:
    from rich.table import Table
    from rich.text import Text

    from mecheval.report import labels as names

    table = Table(box=None, pad_edge=False)
    for name in ("task", "architecture"):
        table.add_column(name, overflow="fold")
    table.add_column("right answers", no_wrap=True, justify="right")
    table.add_column("how it recalls")
    for line in found.facts["lines"]:
        right = "{value:.0%} [{low:.0%}, {high:.0%}]".format(**line["accuracy"]) if line["accuracy"] else line["state"]
        seeds = f" ({names.seed_count(line['agree'], line['judged'])})" if line["judged"] else ""
        how = Text.assemble((line["mechanism"] or "–", "bold"), seeds)
        table.add_row(Text(names.task(line["task"])), Text(line["shown"]), right, how)
    return table


def _print_estimate(subject: str, scale: str, out: Path, workers: int, files: list[str], as_json: bool) -> None:
    from mecheval.cards.card import prepared
    from mecheval.cards.work import home, to_run
    from mecheval.sweeps.estimate import estimate
    from mecheval.terminal import sweep_view as board
    from mecheval.terminal import tables as terminal

    who, size, found = prepared(subject, scale, out, workers, files)
    todo, total = to_run(found), sum(len(part.sweep.experiments) for part in found)
    with terminal.working("measuring a few steps of every kind"):
        taken = estimate(todo, workers)
    folder = home(who, size, out)
    if as_json:
        counts = {"experiments": total, "finished": total - len(todo), "workers": workers}
        print_json({"subject": who.architecture, "scale": size.name, "folder": str(folder), **counts, **vars(taken)})
        return
    console = terminal.console()
    console.print(terminal.title(who.architecture, f"scale {size.name}", str(folder)))
    console.print(board.estimate_table(taken.groups))
    console.print(
        f"{total} experiments, {len(todo)} to run · at most about {terminal.clock(taken.seconds)} with {workers} workers"
    )
