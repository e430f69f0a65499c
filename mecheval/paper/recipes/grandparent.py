"""Beyond the paper, and its stated future work: two steps up the tree."""

from collections.abc import Iterator

from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import Scale, recipe


@recipe("grandparent")
def grandparent(scale: Scale) -> Iterator[Experiment]:
    """ATR: grandparent queries, one to three layers."""
    yield from scale.aside().experiments("atr_grandparent", layers=(1, 2, 3))
