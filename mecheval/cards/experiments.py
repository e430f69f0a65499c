"""The experiments of a card, and the two folders in which they are run.

A card trains the subject and two baselines on both tasks, at the largest width of a scale. The
subject's runs are in a folder of their own, the baselines' in one that all cards share.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from mecheval.cards.run_folder import RunFolder
from mecheval.cards.search import PART
from mecheval.cards.subject import Subject
from mecheval.models.config import ModelConfig, layers_for
from mecheval.runs.experiment import Experiment
from mecheval.runs.files import Damaged, read_json
from mecheval.sweeps.estimate import Costs, estimate_search
from mecheval.sweeps.options import SweepOptions
from mecheval.sweeps.planned import PlannedRun
from mecheval.sweeps.recipe import Scale, get_scale
from mecheval.sweeps.sweep import OPEN

BASELINES = ("attention", "mamba")
TASKS = ("recall", "treecall")
EMERGENCE = "recall"  # the task on which grids are measured during training, too
SEEDS = (0, 1, 2)
CARD = "card.json"
QUICK = "quick"  # the scale of the first answer
GRIDS = 20  # about as many during a training that is not stopped early


def experiments(scale: Scale, architectures: Sequence[str]) -> list[Experiment]:
    """Return the experiments of a card: all rates of the scale, and at least three seeds.

    A pattern of more layers than usual is as deep as it is long.
    """
    size = replace(scale.widest(), seeds=seeds_of(scale))
    planned = []
    for task, architecture in product(TASKS, architectures):
        for experiment in size.experiments(task, [architecture], [layers_for(architecture)]):
            planned.append(_with_grids(experiment) if task == EMERGENCE else experiment)
    return planned


def seeds_of(scale: Scale) -> Sequence[int]:
    return scale.seeds if len(scale.seeds) >= len(SEEDS) else SEEDS


def baselines(architecture: str) -> list[str]:
    """Return the baselines that an architecture is compared with; it is not its own."""
    shortest = ModelConfig(architecture, layers=layers_for(architecture)).architecture
    return [name for name in BASELINES if name != shortest]


def _with_grids(experiment: Experiment) -> Experiment:
    """Measure grids during training, at the sites of a verdict alone: these are the cheapest."""
    evaluations = experiment.train.total // experiment.eval.every
    every = max(evaluations // GRIDS, 1)
    return replace(experiment, eval=replace(experiment.eval, grid="short", grid_every=every))


def card_folder(subject: Subject, scale: Scale, out: Path) -> Path:
    """Return the folder of the card and of the subject's runs."""
    return out / f"card-{subject.folder}-{scale.name}"


@dataclass(frozen=True)
class CardRuns:
    """The subject's experiments by task, rate and seed, its folder, and that of the baselines.

    A baseline has only the shared folder. `quick` are the runs of the scale quick, with whose first
    answer a larger one begins; they stay in the folder of the quick card.
    """

    subject: Subject
    scale: Scale
    folder: Path  # of the card
    own: RunFolder
    shared: RunFolder
    grid: list[Experiment]
    quick: "CardRuns | None" = None

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
        quick = None
        if _work(grid[0]) > _work(experiments(get_scale(QUICK), [subject.architecture])[0]):
            quick = replace(cls.plan(subject, get_scale(QUICK), out, options), folder=folder)
        return cls(subject, scale, folder, own, shared, grid, quick)

    def of(self, task: str, rate: float, seed: int) -> Experiment:
        """Return the subject's experiment on a task, also at a rate that the scale has not."""
        first = next(one for one in self.grid if one.task_spec == task and one.seed == seed)
        return replace(first, train=replace(first.train, lr=rate))

    def keys(self, rates: Iterable[float]) -> list[str]:
        """Return the keys of all experiments of this size at some rates, with the baselines'."""
        planned = [*self.grid, *experiments(self.scale, BASELINES)]
        pairs = product(planned, rates)
        return [replace(one, train=replace(one.train, lr=rate)).key for one, rate in pairs]

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

    @property
    def count(self) -> int:
        """Return the number of experiments of a complete card."""
        return len(self.whole()) + (len(self.quick.searched()) if self.quick else 0)

    def searched(self) -> list[Experiment]:
        """Return the experiments among which the first answer is searched."""
        first, seed = self.tasks[0], self.first_seed
        return [self.of(first, rate, seed) for rate in self.rates(first)]

    def estimate_first(self, workers: int, costs: Costs) -> tuple[float, float] | None:
        """Estimate the seconds to the first answer; None if there is a card already."""
        if self._answered:
            return None
        searched = (self.quick or self).searched()
        return estimate_search(searched, PART, workers, costs)

    @property
    def _answered(self) -> bool:
        return (self.folder / CARD).exists()

    def ahead(self) -> list[PlannedRun]:
        """Return those of `whole` that are not finished; none if the card is complete."""
        if is_complete(self.folder):
            return []
        names = {one.model.architecture for one in self.grid}
        own = [one for one in self.whole() if one.model.architecture in names]
        others = [one for one in self.whole() if one.model.architecture not in names]
        first = self.quick if self.quick and not self._answered else None
        quick = first.own.runs(first.searched()) if first else []
        runs = quick + self.own.runs(own) + (self.shared.runs(others) if others else [])
        return [run for run in runs if run.status in OPEN]


def _work(experiment: Experiment) -> float:
    """Return a number that grows with the cost of a training."""
    model, train = experiment.model, experiment.train
    tokens = train.total * train.batch * experiment.task.max_len
    return float(tokens * model.layers * model.d_model)


def is_complete(folder: Path) -> bool:
    """Tell whether a folder has a card after its last stage, with no failed run."""
    try:
        facts = read_json(folder / CARD)
        failed = [run for run in facts["unfinished"] if run["outcome"] == "failed"]
        return bool(facts["stage"]["last"]) and not failed
    except (Damaged, KeyError, TypeError):
        return False
