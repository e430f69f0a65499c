"""`mecheval demo`: train seven architectures on a small task and say how each of them recalls."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mecheval.cli.app import Seed, app, drawing
from mecheval.cli.sweep import Workers
from mecheval.cli.sweep_report import print_report, write_report
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
    from mecheval.sweeps.options import SweepOptions
    from mecheval.sweeps.recipe import get_experiments, get_scale

    options = SweepOptions() if workers is None else SweepOptions(workers=workers)
    experiments = get_experiments("demo", replace(get_scale("quick"), seeds=(seed,)))
    folder = out or Path("runs") / f"demo-{seed}"
    _introduce(experiments[0])
    from mecheval.sweeps.sweep import sweep
    from mecheval.terminal.sweep_view import failures, sweep_progress

    with sweep_progress(options.workers) as watch:
        runs = sweep(experiments, folder, options, "demo", "quick", watch)
    if written := write_report(folder):
        print_report(*written)
    if failed := failures([run.row() for run in runs]):
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
