"""Figure 4a: Mamba needs a short convolution of at least two taps for Associative Recall."""

from collections.abc import Iterator

from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import MAMBAS, Scale, recipe


@recipe("figure4a", figure="4a")
def figure4a(scale: Scale) -> Iterator[Experiment]:
    """AR: Mamba with d_conv 0 to 4."""
    yield from scale.experiments("recall", MAMBAS)
