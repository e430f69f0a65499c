"""Figure 9: positions help attention and nobody else."""

from collections.abc import Iterator

from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import ARCHITECTURES, Scale, recipe


@recipe("figure9", figure="9")
def figure9(scale: Scale) -> Iterator[Experiment]:
    """AR and two grammars of ATR: every architecture with and without positions."""
    both = [f"{name}:positions={positions}" for name in ARCHITECTURES for positions in ("true", "false")]
    for task in ("recall", "atr", "atr_l10"):
        yield from scale.aside().experiments(task, both)
