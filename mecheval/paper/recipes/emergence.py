"""Beyond the paper: when in training does the mechanism appear, and does it come before the accuracy?"""

from collections.abc import Iterator

from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import Scale, recipe


@recipe("emergence")
def emergence(scale: Scale) -> Iterator[Experiment]:
    """AR: the mechanism at every evaluation during training, widest models."""
    yield from scale.aside().widest().experiments("recall", fields={"eval.grid_every": 1, "eval.grid": "short"})
