"""The experiments behind each figure of the paper, and behind the question it leaves open.

pyproject.toml registers every function as the recipe of its name.
"""

from collections.abc import Iterator

from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import ARCHITECTURES, Scale

MAMBAS = [f"mamba:d_conv={taps}" for taps in range(5)]
LINEAR = {"train.schedule": "linear"}  # §4.1 says cosine; figures 10 and 13 were run so


def figure1(scale: Scale) -> Iterator[Experiment]:
    """Train Attention, Based, Mamba and Mamba without convolution on AR and ATR."""
    for task in ("recall", "atr"):
        models = ["attention", "based", "mamba", "mamba:d_conv=0"]
        yield from scale.aside().experiments(task, models)


def figure2(scale: Scale) -> Iterator[Experiment]:
    """Train Attention on AR, on which the paper shows what an interchange intervention is."""
    yield from scale.aside().experiments("recall", ["attention"])


def figure3(scale: Scale) -> Iterator[Experiment]:
    """Train every architecture on AR at every width and rate: which solve it, and how?"""
    yield from scale.experiments("recall")


def figure4a(scale: Scale) -> Iterator[Experiment]:
    """Train Mamba on AR with d_conv 0 to 4: it needs a convolution of two taps or more."""
    yield from scale.experiments("recall", MAMBAS)


def figure4b(scale: Scale) -> Iterator[Experiment]:
    """Train Based on AR with convolutions of 1 to 4 taps, and with a long one."""
    kernels = (1, 2, 3, 4, "long")
    yield from scale.experiments("recall", [f"based:kernel={kernel}" for kernel in kernels])


def figure5(scale: Scale) -> Iterator[Experiment]:
    """Locate the key behind Mamba's convolutions on AR, at every width and rate."""
    yield from scale.experiments("recall", ["mamba"])


def figure7(scale: Scale) -> Iterator[Experiment]:
    """Train every architecture on ATR in three grammars, the first at every width and rate."""
    first, *others = scale.grammars
    yield from scale.experiments(first)
    for task in others:
        yield from scale.aside().experiments(task)


def figure8(scale: Scale) -> Iterator[Experiment]:
    """Train Mamba on ATR with d_conv 0 to 4: without a convolution it learns induction."""
    yield from scale.experiments("atr", MAMBAS)


def figure9(scale: Scale) -> Iterator[Experiment]:
    """Train every architecture on AR and two grammars of ATR, with and without positions."""
    both = [f"{name}:positions={value}" for name in ARCHITECTURES for value in ("true", "false")]
    for task in ("recall", "atr", "atr_l10"):
        yield from scale.aside().experiments(task, both)


def figure10(scale: Scale) -> Iterator[Experiment]:
    """Compare dev and test on ATR with a fifth of the pairs asked only in test."""
    fields = {**LINEAR, "eval.grid_split": "both"}
    yield from scale.aside().experiments("atr_split", fields=fields)


def figure11(scale: Scale) -> Iterator[Experiment]:
    """Compare one layer with two on AR and ATR: induction needs two, direct retrieval one."""
    for task in ("recall", "atr"):
        yield from scale.aside().experiments(task, layers=(1, 2))


def figure12(scale: Scale) -> Iterator[Experiment]:
    """Find the layer whose mixer retrieves on AR, in models of one to three layers."""
    fields = {"eval.grid": "stream"}
    yield from scale.aside().experiments("recall", layers=(1, 2, 3), fields=fields)


def figure13(scale: Scale) -> Iterator[Experiment]:
    """Train every architecture on sibling queries of ATR with one to three layers."""
    yield from scale.aside().experiments("atr_sibling", layers=(1, 2, 3), fields=LINEAR)


def grandparent(scale: Scale) -> Iterator[Experiment]:
    """Train every architecture on grandparent queries of ATR with one to three layers."""
    yield from scale.aside().experiments("atr_grandparent", layers=(1, 2, 3))


def reverse(scale: Scale) -> Iterator[Experiment]:
    """Train every architecture on AR that shows a value and asks for its key."""
    yield from scale.aside().experiments("recall:query=value", layers=(3,))  # as was published
