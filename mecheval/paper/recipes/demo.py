"""What `mecheval demo` runs: figure 3 with one width."""

from collections.abc import Iterator

from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import Scale, recipe


@recipe("demo")
def demo(scale: Scale) -> Iterator[Experiment]:
    """AR: every architecture at the largest width."""
    yield from scale.widest().experiments("recall")
