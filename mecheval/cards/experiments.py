"""Which experiments a card asks for: the subject and two baselines, on both tasks, at a scale's largest width."""

from collections.abc import Sequence
from dataclasses import replace

from mecheval.models.config import ModelConfig
from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import Scale

BASELINES = ("attention", "mamba")
TASKS = ("recall", "treecall")
EMERGENCE = "recall"  # the task on which the mechanism is watched as it comes about
SEEDS = (0, 1, 2)
GRIDS = 20  # about so many during a training that is not stopped early


def experiments(scale: Scale, architectures: Sequence[str]) -> list[Experiment]:
    """All rates of the scale, and three seeds where it has fewer."""
    size = replace(scale.widest(), seeds=scale.seeds if len(scale.seeds) >= len(SEEDS) else SEEDS)
    found = [(task, one) for task in TASKS for one in size.experiments(task, architectures)]
    return [_watched(one) if task == EMERGENCE else one for task, one in found]


def baselines(architecture: str) -> list[str]:
    """Those that a card of this architecture has beside it: it is not its own."""
    return [name for name in BASELINES if name != ModelConfig(architecture=architecture).architecture]


def _watched(experiment: Experiment) -> Experiment:
    """With the sites that a verdict needs, and no others: a card looks at all of them in its best run alone."""
    evaluations = experiment.train.total // experiment.eval.every
    asked = replace(experiment.eval, grid="short", grid_every=max(evaluations // GRIDS, 1))
    return replace(experiment, eval=asked)
