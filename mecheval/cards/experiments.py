"""The experiments of a card, and the two folders in which they are run.

A card trains the subject and two baselines on both tasks, at the largest width of a scale. The
subject's runs are in a folder of their own, the baselines' in one that all cards share.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from mecheval.cards.search import Stopped, read_stopped, write_stopped
from mecheval.cards.subject import Subject
from mecheval.core.plugin_files import isolated_plugins
from mecheval.models.config import ModelConfig
from mecheval.results.plan import Plan
from mecheval.runs.experiment import Experiment
from mecheval.runs.files import Damaged, read_json
from mecheval.runs.pending import STOPPED
from mecheval.sweeps.options import SweepOptions
from mecheval.sweeps.planned import Outcome, PlannedRun
from mecheval.sweeps.recipe import Scale
from mecheval.sweeps.sweep import OPEN, Executor, Sweep, Watch
from mecheval.sweeps.worker import work

RECIPE = "card"
BASELINES = ("attention", "mamba")
TASKS = ("recall", "treecall")
EMERGENCE = "recall"  # the task on which grids are measured during training, too
SEEDS = (0, 1, 2)
CARD = "card.json"
GRIDS = 20  # about as many during a training that is not stopped early


def experiments(scale: Scale, architectures: Sequence[str]) -> list[Experiment]:
    """Return the experiments of a card: all rates of the scale, and at least three seeds."""
    size = replace(scale.widest(), seeds=seeds_of(scale))
    planned = []
    for task in TASKS:
        for experiment in size.experiments(task, architectures):
            planned.append(_with_grids(experiment) if task == EMERGENCE else experiment)
    return planned


def seeds_of(scale: Scale) -> Sequence[int]:
    return scale.seeds if len(scale.seeds) >= len(SEEDS) else SEEDS


def baselines(architecture: str) -> list[str]:
    """Return the baselines that an architecture is compared with; it is not its own."""
    shortest = ModelConfig(architecture=architecture).architecture
    return [name for name in BASELINES if name != shortest]


def _with_grids(experiment: Experiment) -> Experiment:
    """Measure grids during training, at the sites of a verdict alone: these are the cheapest."""
    evaluations = experiment.train.total // experiment.eval.every
    every = max(evaluations // GRIDS, 1)
    return replace(experiment, eval=replace(experiment.eval, grid="short", grid_every=every))


def card_folder(subject: Subject, scale: Scale, out: Path) -> Path:
    """Return the folder of the card and of the subject's runs."""
    return out / f"card-{subject.folder}-{scale.name}"


class RunFolder:
    """Runs of a card in one folder, planned step by step.

    `always` are planned from the start, others when they are asked for; runs that an earlier
    process began stay planned. `requested` has the keys of all experiments asked for.
    """

    def __init__(
        self,
        folder: Path,
        scale: str,
        runner: Subject,
        options: SweepOptions,
        always: list[Experiment],
    ) -> None:
        self.folder, self._scale, self._runner = folder, scale, runner
        self._options = replace(options, plugins=runner.plugins)
        self._planned = {one.key: one for one in [*always, *self._begun()]}
        self.requested: dict[str, Experiment] = {}
        self._tried: set[str] = set()
        self.stopped = read_stopped(folder)

    def runs(self, experiments: Sequence[Experiment]) -> list[PlannedRun]:
        """Return experiments in their present state; refuse finished runs of other versions."""
        with isolated_plugins(self._runner.checksums):
            return self._sweep(experiments).runs()

    def missing(self, experiments: Sequence[Experiment]) -> list[Experiment]:
        """Return those that are not finished."""
        return [one for one in experiments if not (self.folder / one.name).exists()]

    def execute(
        self, experiments: Sequence[Experiment], watch: Watch, until: int | None = None
    ) -> bool:
        """Train what is not finished, and return whether there was anything to do.

        What failed is not tried again by the same process. With `until`, training pauses there.
        """
        self.requested |= {one.key: one for one in experiments}
        todo = [one for one in self.missing(experiments) if one.key not in self._tried]
        if not todo:
            return False
        self._planned |= {one.key: one for one in todo}
        keys = {one.key for one in todo}
        self._tried |= keys if until is None else set()
        with isolated_plugins(self._runner.checksums):
            sweep = self._sweep(list(self._planned.values()))
            shown = partial(self._watch, watch, {one.key for one in experiments})
            sweep.execute(self._executor, watch=shown, keys=keys, until=until)
        return True

    def stop(self, stopped: Mapping[str, Stopped]) -> None:
        """Keep what the search stopped, and why."""
        self.stopped |= stopped
        write_stopped(self.folder, self.stopped)

    def _watch(self, watch: Watch, keys: set[str], runs: Sequence[PlannedRun]) -> None:
        """Show the runs of this stage; those that wait at a rung or were stopped are paused."""
        shown = [run for run in runs if run.record["key"] in keys]
        for run in shown:
            if run.status == STOPPED or (run.status == "killed" and run.reason is None):
                run.status = "paused"
        watch(shown)

    def _begun(self) -> Iterator[Experiment]:
        """Yield the planned experiments of an earlier process that have a folder."""
        plan = Plan.read(self.folder) if self.folder.is_dir() else None
        for record, name in zip(plan.experiments, plan.folders, strict=True) if plan else ():
            if any(self.folder.glob(f"{name}*")):
                yield Experiment.from_record(record)

    def _sweep(self, experiments: Sequence[Experiment]) -> Sweep:
        return Sweep(experiments, self.folder, RECIPE, self._scale, self._options)

    def _executor(self) -> Executor:
        from mecheval.sweeps.local import Local

        return InProcess() if self._runner.checksums else Local(self._options.workers)


@dataclass(frozen=True)
class CardRuns:
    """The subject's experiments by task, rate and seed, its folder, and that of the baselines.

    A baseline has only the shared folder.
    """

    subject: Subject
    scale: Scale
    folder: Path  # of the card
    own: RunFolder
    shared: RunFolder
    grid: list[Experiment]

    @classmethod
    def plan(cls, subject: Subject, scale: Scale, out: Path, options: SweepOptions) -> "CardRuns":
        """Plan all runs; refuse those of other versions before anything starts."""
        common = experiments(scale, BASELINES)
        place = out / f"card-baselines-{scale.name}"
        shared = RunFolder(place, scale.name, Subject("baselines"), options, common)
        folder, own = card_folder(subject, scale, out), shared
        grid = experiments(scale, [subject.architecture])
        if subject.architecture not in BASELINES:
            own = RunFolder(folder, scale.name, subject, options, [])
            own.runs(grid)
        shared.runs(common)
        return cls(subject, scale, folder, own, shared, grid)

    def of(self, task: str, rate: float, seed: int) -> Experiment:
        """Return the subject's experiment on a task, also at a rate that the scale has not."""
        first = next(one for one in self.grid if one.task_spec == task and one.seed == seed)
        return replace(first, train=replace(first.train, lr=rate))

    def rates(self, task: str) -> list[float]:
        """Return the scale's rates on a task."""
        return sorted({one.train.lr for one in self.grid if one.task_spec == task})

    def baseline_runs(self, task: str) -> list[Experiment]:
        common = experiments(self.scale, BASELINES)
        return [one for one in common if one.task_spec == task]

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(one.task_spec for one in self.grid))

    @property
    def first_seed(self) -> int:
        return self.grid[0].seed

    def whole(self) -> list[Experiment]:
        """Return all experiments if every rate has one seed, and one rate has all.

        That rate is the one with the most seeds so far, or one in the middle.
        """
        planned = []
        for task in self.tasks:
            grid = [one for one in self.grid if one.task_spec == task]
            left = [one.train.lr for one in self.own.missing(grid)]
            rates = self.rates(task)
            usual = min(rates, key=lambda rate: (left.count(rate), rate != rates[len(rates) // 2]))
            kept = [one for one in grid if one.seed == self.first_seed or one.train.lr == usual]
            planned += kept
        both = [*planned, *experiments(self.scale, BASELINES)]
        return list({one.key: one for one in both}.values())

    def ahead(self) -> list[PlannedRun]:
        """Return those of `whole` that are not finished; none if the card is complete."""
        if is_complete(self.folder):
            return []
        names = {one.model.architecture for one in self.grid}
        own = [one for one in self.whole() if one.model.architecture in names]
        others = [one for one in self.whole() if one.model.architecture not in names]
        runs = self.own.runs(own) + (self.shared.runs(others) if others else [])
        return [run for run in runs if run.status in OPEN]


def is_complete(folder: Path) -> bool:
    """Tell whether a folder has a card after its last stage, with no failed run."""
    try:
        facts = read_json(folder / CARD)
        failed = [run for run in facts["unfinished"] if run["outcome"] == "failed"]
        return bool(facts["stage"]["last"]) and not failed
    except (Damaged, KeyError, TypeError):
        return False


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
