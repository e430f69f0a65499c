"""Figure 5: where Mamba's short convolution takes the key. Its sites are part of every grid."""

from collections.abc import Iterator

from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import Scale, recipe


@recipe("figure5", figure="5")
def figure5(scale: Scale) -> Iterator[Experiment]:
    """AR: Mamba's convolutions, every width and rate."""
    yield from scale.experiments("recall", ["mamba"])
