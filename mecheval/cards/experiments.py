"""The experiments of a card, and the two sweeps that run them.

A card trains the subject and two baselines on both tasks, at the largest width of a scale. The
subject's runs are in a folder of their own, the baselines' in one that all cards share.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from mecheval.cards.subject import Subject
from mecheval.models.config import ModelConfig
from mecheval.plugins import isolated_plugins
from mecheval.runs.experiment import Experiment
from mecheval.sweeps.planned import Outcome, PlannedRun
from mecheval.sweeps.recipe import Scale
from mecheval.sweeps.sweep import OPEN, Executor, Sweep, SweepOptions, Watch
from mecheval.sweeps.worker import work

RECIPE = "card"
BASELINES = ("attention", "mamba")
TASKS = ("recall", "treecall")
EMERGENCE = "recall"  # the task on which grids are measured during training, too
SEEDS = (0, 1, 2)
GRIDS = 20  # about as many during a training that is not stopped early


def experiments(scale: Scale, architectures: Sequence[str]) -> list[Experiment]:
    """Return the experiments of a card: all rates of the scale, and at least three seeds."""
    seeds = scale.seeds if len(scale.seeds) >= len(SEEDS) else SEEDS
    size = replace(scale.widest(), seeds=seeds)
    planned = []
    for task in TASKS:
        for experiment in size.experiments(task, architectures):
            planned.append(_with_grids(experiment) if task == EMERGENCE else experiment)
    return planned


def baselines(architecture: str) -> list[str]:
    """Return the baselines that an architecture is compared with; it is not its own."""
    shortest = ModelConfig(architecture=architecture).architecture
    return [name for name in BASELINES if name != shortest]


def _with_grids(experiment: Experiment) -> Experiment:
    """Measure grids during training, at the sites of a verdict alone: these are the cheapest."""
    evaluations = experiment.train.total // experiment.eval.every
    every = max(evaluations // GRIDS, 1)
    return replace(experiment, eval=replace(experiment.eval, grid="short", grid_every=every))


@dataclass(frozen=True)
class CardSweep:
    """One of the two sweeps of a card; `checksums` are those of a subject without a file."""

    sweep: Sweep
    checksums: Mapping[str, str]

    def runs(self) -> list[PlannedRun]:
        with isolated_plugins(self.checksums):
            return self.sweep.runs()

    def execute(self, watch: Watch) -> list[PlannedRun]:
        with isolated_plugins(self.checksums):
            return self.sweep.execute(self._executor, watch=watch)

    def _executor(self) -> Executor:
        from mecheval.sweeps.local import Local

        return InProcess() if self.checksums else Local(self.sweep.options.workers)


def plan_sweeps(subject: Subject, scale: Scale, out: Path, workers: int) -> list[CardSweep]:
    """Plan both sweeps, the subject's first; a baseline has only the shared one."""

    def plan(names: Sequence[str], folder: Path, runner: Subject) -> CardSweep:
        options = SweepOptions(workers=workers, plugins=runner.plugins)
        inner = Sweep(experiments(scale, names), folder, RECIPE, scale.name, options)
        sweep = CardSweep(inner, runner.checksums)
        sweep.runs()  # refuses runs of other versions before anything starts
        return sweep

    shared = plan(BASELINES, out / f"card-baselines-{scale.name}", Subject("baselines"))
    if subject.architecture in BASELINES:
        return [shared]
    return [plan([subject.architecture], card_folder(subject, scale, out), subject), shared]


def card_folder(subject: Subject, scale: Scale, out: Path) -> Path:
    """Return the folder of the card and of the subject's runs."""
    return out / f"card-{subject.folder}-{scale.name}"


def run_sweeps(sweeps: Sequence[CardSweep], watch: Watch) -> None:
    """Run one sweep after the other; `watch` always gets the runs of both."""
    for sweep in sweeps:
        others = [run for other in sweeps if other is not sweep for run in other.runs()]
        sweep.execute(partial(_watch_both, watch, others))


def _watch_both(watch: Watch, others: Sequence[PlannedRun], runs: Sequence[PlannedRun]) -> None:
    watch([*runs, *others])


def unfinished_runs(sweeps: Sequence[CardSweep]) -> list[PlannedRun]:
    """Return the runs that are still to be trained."""
    return [run for sweep in sweeps for run in sweep.runs() if run.status in OPEN]


class InProcess:
    """Executes runs one by one in this process, for a class that no other process can import."""

    def __init__(self) -> None:
        self._ended: list[tuple[PlannedRun, Outcome]] = []

    @property
    def free(self) -> int:
        return 1 - len(self._ended)

    def start(self, run: PlannedRun) -> None:
        outcome = work(run)
        if outcome.status == "stopped":
            raise KeyboardInterrupt(outcome.reason)
        self._ended.append((run, outcome))

    def ended(self) -> Iterator[tuple[PlannedRun, Outcome]]:
        while self._ended:
            yield self._ended.pop()

    def stop(self) -> None:
        """Do nothing: `start` returns when its run has ended."""
