"""The recipes and scales of mecheval itself: demo, emergence and cost; quick and small.

`quick` takes minutes on two cores, `small` an evening for all recipes.
"""

from collections.abc import Iterator
from itertools import product

from mecheval.core.spec import Scalar
from mecheval.interventions.grid import EvalConfig
from mecheval.models.config import ModelConfig
from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import ARCHITECTURES, NEWER, Scale, Size
from mecheval.tasks.recall import Recall
from mecheval.training.config import TrainConfig

# with the paper's initialisation, 0.02 for all, accuracy stays at chance for thousands of steps
_START = {"model.init.linear": 3.0, "model.init.embedding": 5.0}
_FOUR_PAIRS = {"pairs": 4, "vocab": 64}  # with 8, attention is at chance after 7,500 steps
_SHORT = {"max_len": 32}
_RECALL: dict[str, Scalar] = {**_START, "train.batch": 128, "train.stop": 0.99, "eval.every": 100}
_RECALL |= {"eval.documents": 512, "train.steps": 3000}
_RECALL |= {"eval.grid": "stream"}  # as recipes that compare layers need it: runs are shared
_TREECALL = {**_START, "train.batch": 32, "train.bucket": 8, "eval.every": 500}
_TREECALL |= {"eval.documents": 512}
_TREECALL |= {"train.steps": 3000}  # after 2,000 attention still hardly needs the key: unsolved
_COST_STEPS = 20


def demo(scale: Scale) -> Iterator[Experiment]:
    """Train every architecture on AR at the largest width."""
    yield from scale.widest().experiments("recall")


def emergence(scale: Scale) -> Iterator[Experiment]:
    """Measure the mechanism on AR at every evaluation during training, in the widest models."""
    grids = {"eval.grid_every": 1, "eval.grid": "short"}
    yield from scale.aside().widest().experiments("recall", fields=grids)


def cost(scale: Scale) -> Iterator[Experiment]:
    """Measure time and memory for each token on AR as documents get longer.

    Every step has the same number of tokens: few long documents or many short ones. The provenance
    of each run has its time and memory.
    """
    width, longest = max(scale.recall.widths), max(scale.lengths)
    evaluation = EvalConfig(documents=1, every=_COST_STEPS, grid="none")
    for length in scale.lengths:
        # one token less than the length: BOS, divider and query stand beside the pairs
        task = Recall(pairs=length // 2 - 2, vocab=longest)
        batch = scale.tokens // length
        train = TrainConfig(documents=0, steps=_COST_STEPS, batch=batch, lr=1e-3)
        for architecture, seed in product(ARCHITECTURES, scale.seeds_of(scale.recall, width)):
            model = ModelConfig(architecture, d_model=width, max_len=longest)
            yield Experiment(task=task, model=model, train=train, eval=evaluation, seed=seed)


def quick() -> Scale:
    """Return one width, one rate and one seed of small tasks."""
    one_rate = dict.fromkeys((*ARCHITECTURES, *NEWER), (3e-3,))
    one_rate |= dict.fromkeys(("attention", "hybrid", "parallel"), (1e-3,))
    recall = {**one_rate, "mamba": (1e-2,)}
    treecall = {**one_rate, "mamba": (3e-3,)}
    return Scale(
        name="quick",
        recall=Size(widths=(64,), rates=recall, options=_FOUR_PAIRS, fields=_RECALL),
        treecall=Size(widths=(64,), rates=treecall, options=_SHORT, fields=_TREECALL),
    )


def small() -> Scale:
    """Return three widths, two rates and three seeds of the tasks of `quick`."""
    two_rates = dict.fromkeys((*ARCHITECTURES, *NEWER, "hybrid", "parallel"), (1e-3, 3e-3))
    usual = quick()
    return Scale(
        name="small",
        recall=Size(
            widths=(16, 32, 64),
            rates={**two_rates, **dict.fromkeys(("mamba", "mamba2", "mamba3"), (3e-3, 1e-2))},
            options=_FOUR_PAIRS,
            fields=_RECALL,
            usual=usual.recall.rates,
        ),
        treecall=Size(
            widths=(16, 32, 64),
            rates=two_rates,
            options=_SHORT,
            fields=_TREECALL,
            usual=usual.treecall.rates,
        ),
        seeds=(0, 1, 2),
    )
