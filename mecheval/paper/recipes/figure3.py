"""Figure 3: who solves Associative Recall, and how."""

from collections.abc import Iterator

from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import Scale, recipe


@recipe("figure3", figure="3")
def figure3(scale: Scale) -> Iterator[Experiment]:
    """AR: every architecture, width and rate."""
    yield from scale.experiments("recall")
