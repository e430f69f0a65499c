"""Figure 11: induction needs two layers, direct retrieval one."""

from collections.abc import Iterator

from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import Scale, recipe


@recipe("figure11", figure="11")
def figure11(scale: Scale) -> Iterator[Experiment]:
    """AR and ATR: one layer against two."""
    for task in ("recall", "atr"):
        yield from scale.aside().experiments(task, layers=(1, 2))
