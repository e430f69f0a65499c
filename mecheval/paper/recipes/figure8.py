"""Figure 8: without its short convolution Mamba learns induction on Associative Treecall."""

from collections.abc import Iterator

from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import MAMBAS, Scale, recipe


@recipe("figure8", figure="8")
def figure8(scale: Scale) -> Iterator[Experiment]:
    """ATR: Mamba with d_conv 0 to 4."""
    yield from scale.experiments("atr", MAMBAS)
