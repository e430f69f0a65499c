"""`mecheval demo`: train seven architectures on a small task and say how each of them recalls."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mecheval.cli.app import Seed, app, drawing
from mecheval.cli.sweep import Workers
from mecheval.core.errors import RunFailed

if TYPE_CHECKING:
    from mecheval.runs.experiment import Experiment

INTRODUCTION = (
    "Seven architectures learn to recall. A document has pairs of a key and a value, then one of "
    "the keys again; the right answer is its value. Each model trains until it answers 99 % of "
    "unseen documents correctly, or for {steps:,} steps. Then a key is corrupted, which loses the "
    "answer, and the clean activation is restored at one token after another: where the answer "
    "comes back is where the model keeps the information.\n"
)
_OUT = "folder of the runs  [default: runs/demo-SEED]"


@app.command(epilog="Example: mecheval demo --seed 1")
def demo(
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help=_OUT)] = None,
    workers: Workers = None,
) -> None:
    """Train seven architectures on a small recall task and say how each of them recalls.

    Takes some minutes on two cores and writes a report.
    """
    from mecheval.paper.recipes import named, scale_named
    from mecheval.sweeps.agenda import SweepOptions

    options = SweepOptions() if workers is None else SweepOptions(workers=workers)
    experiments = named("demo").experiments(replace(scale_named("quick"), seeds=(seed,)))
    folder = out or Path("runs") / f"demo-{seed}"
    _introduce(experiments[0])
    from mecheval.sweeps.sweep import sweep
    from mecheval.terminal.sweep_view import board, failures

    with board(options.workers) as watch:
        states = sweep(experiments, folder, options, "demo", "quick", watch)
    _conclude(folder)
    if failed := failures([state.to_dict() for state in states]):
        raise RunFailed("\n".join(failed))


def _introduce(experiment: "Experiment") -> None:
    """Explain the task and print a document of it."""
    from mecheval.tasks.sample import sample
    from mecheval.terminal import tables as terminal
    from mecheval.terminal.documents import document, legend

    console = terminal.console()
    console.print(INTRODUCTION.format(steps=experiment.train.total))
    with drawing():
        (record,) = sample(experiment.task, 1, experiment.seed)
    console.print(legend(), document(record, console.width), "", sep="\n")


def _conclude(folder: Path) -> None:
    """Print the verdicts and write the report."""
    from rich.text import Text

    from mecheval.report.files import write_page
    from mecheval.report.study import Study
    from mecheval.report.verdicts import verdicts
    from mecheval.terminal import tables as terminal

    study = Study.read(folder)
    rows = []
    for line in verdicts(study).to_dict("records"):
        accuracy = terminal.whole_percent(line) if line["state"] == "measured" else "–"
        mechanism = Text.assemble((line["mechanism"], "bold"), ": ", line["meaning"])
        rows.append((line["shown"], accuracy, mechanism))
    console = terminal.console()
    console.print(terminal.verdict_table(["architecture"], rows), "")
    page = write_page(study, folder / "report.html")
    console.print(f"Report with figures, training curves and every number: {page}", soft_wrap=True)
