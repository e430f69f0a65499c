"""Figure 13: rightmost siblings are easy for every architecture."""

from collections.abc import Iterator

from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import LINEAR, Scale, recipe


@recipe("figure13", figure="13")
def figure13(scale: Scale) -> Iterator[Experiment]:
    """ATR: sibling queries, one to three layers."""
    yield from scale.aside().experiments("atr_sibling", layers=(1, 2, 3), fields=LINEAR)
