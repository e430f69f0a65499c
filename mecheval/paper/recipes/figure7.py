"""Figure 7: the mechanisms of figure 3 on Associative Treecall, in several grammars."""

from collections.abc import Iterator

from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import Scale, recipe


@recipe("figure7", figure="7")
def figure7(scale: Scale) -> Iterator[Experiment]:
    """ATR: every architecture, width and rate in three grammars."""
    first, *others = scale.grammars
    yield from scale.experiments(first)
    for task in others:
        yield from scale.aside().experiments(task)
