"""A prediction about Mamba-3, written on 2026-11-19, before any run of its recipe.

The paper says that an SSM retrieves directly with the help of a short convolution, which joins a
key to the value after it. Mamba-3 has none. It writes k_{t−1} v_{t−1} and k_t v_t, never
k_{t−1} v_t. If the paper is right, one layer of it cannot join a key to the next value. Two layers
must do induction, or fail. A convolution in front of it must bring direct retrieval back.
"""

from collections.abc import Iterator

from mecheval.interventions.verdict import DIRECT, INDUCTION, UNSOLVED
from mecheval.paper.claims.readings import accuracy_at_most, mechanisms
from mecheval.report.claims import claim
from mecheval.report.evidence import Cell, Evidence
from mecheval.report.numbers import Number, count_at_least, count_verdicts, gaps

WHERE = "our prediction, 2026-11-19"
BARE = ("mamba3", "mamba2:d_conv=0")
WITH = {"mamba3": "mamba3:d_conv=4", "mamba2:d_conv=0": "mamba2"}


@claim(
    "mamba3",
    WHERE,
    says="One layer of Mamba-3 cannot join a key to the next value: it fails at AR.",
    rule="accuracy at most 50 % with one layer, as of Mamba-2 without convolution",
)
def mamba3_one_layer(runs: Evidence) -> Iterator[Number]:
    yield from accuracy_at_most(runs, {Cell(name, layers=1): 50 for name in BARE})


@claim(
    "mamba3",
    WHERE,
    says="Two layers of Mamba-3 do induction on AR, or fail.",
    rule="the verdict with two layers is induction or unsolved, as of Mamba-2 without convolution",
)
def mamba3_two_layers(runs: Evidence) -> Iterator[Number]:
    for cell in map(Cell, BARE):
        what = f"{cell}: induction or unsolved"
        yield count_verdicts((INDUCTION, UNSOLVED), what, runs.mechanisms(cell))


@claim(
    "mamba3",
    WHERE,
    says="A short convolution in front of Mamba-3 makes one layer of it recall.",
    rule="with one layer four taps give at least 20 points more than none in the same seed, as in "
    "Mamba-2",
)
def mamba3_convolution(runs: Evidence) -> Iterator[Number]:
    for bare, name in WITH.items():
        without, cell = Cell(bare, layers=1), Cell(name, layers=1)
        more = gaps(runs.accuracy(cell), runs.accuracy(without))
        yield count_at_least(20, f"{cell} less {without}: points", more)


@claim(
    "mamba3",
    WHERE,
    says="With a short convolution two layers of Mamba-3 retrieve directly.",
    rule="the verdict, as of Mamba-2",
)
def mamba3_direct(runs: Evidence) -> Iterator[Number]:
    yield from mechanisms(runs, DIRECT, map(Cell, WITH.values()))


PREDICTED = (mamba3_one_layer, mamba3_two_layers, mamba3_convolution, mamba3_direct)
