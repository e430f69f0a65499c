"""Figure 4b: Based needs a short convolution of at least two taps for Associative Recall."""

from collections.abc import Iterator

from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import Scale, recipe


@recipe("figure4b", figure="4b")
def figure4b(scale: Scale) -> Iterator[Experiment]:
    """AR: Based with convolutions of 1 to 4 taps, and a long one."""
    yield from scale.experiments("recall", [f"based:kernel={kernel}" for kernel in (1, 2, 3, 4, "long")])
