"""Figure 10: does what was learned hold for pairs that were never asked about?"""

from collections.abc import Iterator

from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import LINEAR, Scale, recipe


@recipe("figure10", figure="10")
def figure10(scale: Scale) -> Iterator[Experiment]:
    """ATR: a fifth of the pairs asked only in test; dev against test at every rate."""
    yield from scale.aside().experiments("atr_split", fields={**LINEAR, "eval.grid_split": "both"})
