"""The demo: seven architectures on a small task, trained, looked into and judged."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mecheval.cli.app import Seed, app, drawing
from mecheval.cli.sweep import Workers
from mecheval.core.errors import RunFailed

if TYPE_CHECKING:
    from mecheval.runs.experiment import Experiment

INTRODUCTION = (
    "Seven architectures learn to recall. A document has some pairs of a key and a value, then one of the keys; the "
    "right answer is its value. Each model trains until it answers 99 % of documents it has not seen, or for {steps:,} "
    "steps. Then a key is corrupted, so that the answer is lost, and the clean activation is put back at one token "
    "after another: where the answer comes back is where the model keeps what it knows.\n"
)


@app.command(epilog="Example: mecheval demo --seed 1")
def demo(
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="where the runs are; runs/demo-SEED if left out")
    ] = None,
    workers: Workers = None,
) -> None:
    """Trains seven architectures on a small recall task and says how each of them recalls; minutes on two cores."""
    from mecheval.sweeps.agenda import SweepOptions
    from mecheval.sweeps.recipe import get_experiments, get_scale

    options = SweepOptions() if workers is None else SweepOptions(workers=workers)
    experiments = get_experiments("demo", replace(get_scale("quick"), seeds=(seed,)))
    folder = out or Path("runs") / f"demo-{seed}"
    _introduce(experiments[0])
    from mecheval.sweeps.sweep import sweep
    from mecheval.terminal.sweep_view import board, failures

    with board(options.workers) as watch:
        states = [state.to_dict() for state in sweep(experiments, folder, options, "demo", "quick", watch)]
    _conclude(folder)
    if failed := failures(states):
        raise RunFailed("\n".join(failed))


def _introduce(experiment: "Experiment") -> None:
    from mecheval.tasks import sample as records
    from mecheval.terminal import tables as terminal

    console = terminal.console()
    console.print(INTRODUCTION.format(steps=experiment.train.total))
    with drawing():
        (record,) = records.sample(experiment.task, 1, experiment.seed)
    console.print(terminal.legend(), terminal.document(record, console.width), "", sep="\n")


def _conclude(folder: Path) -> None:
    from mecheval.report.files import write_page
    from mecheval.report.study import Study
    from mecheval.report.verdicts import verdicts
    from mecheval.terminal import tables as terminal

    study = Study.read(folder)
    console = terminal.console()
    console.print(_table(verdicts(study).to_dict("records")), "")
    page = write_page(study, folder / "report.html")
    console.print(f"The same with pictures, training curves and every number: {page}", soft_wrap=True)


def _table(lines: Sequence[Mapping[str, Any]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("architecture", no_wrap=True)
    table.add_column("right answers", no_wrap=True, justify="right")
    table.add_column("how it recalls")
    for line in lines:
        ends = "{value:.0%} [{low:.0%}, {high:.0%}]".format(**line) if line["value"] == line["value"] else "–"
        table.add_row(line["shown"], ends, Text.assemble((line["mechanism"], "bold"), ": ", line["meaning"]))
    return table
