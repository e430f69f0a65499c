"""Figure 3: who solves Associative Recall, and how."""

from collections.abc import Iterator

from mecheval.experiment import Experiment
from mecheval.recipes.recipe import Scale, recipe


@recipe("figure3", figure="3")
def figure3(scale: Scale) -> Iterator[Experiment]:
    """AR: every architecture, width and rate."""
    yield from scale.experiments("recall")
