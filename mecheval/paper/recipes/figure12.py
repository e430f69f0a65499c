"""Figure 12: which layer's mixer writes the answer to the query."""

from collections.abc import Iterator

from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import Scale, recipe


@recipe("figure12", figure="12")
def figure12(scale: Scale) -> Iterator[Experiment]:
    """AR: the layer of retrieval in models of one to three layers."""
    yield from scale.aside().experiments("recall", layers=(1, 2, 3), fields={"eval.grid": "stream"})
