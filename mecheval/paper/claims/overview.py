"""Claims of sections 1 and 3, with figures 1 and 2: the summary, and what an intervention shows."""

from collections.abc import Iterator

from mecheval.interventions.verdict import DIRECT, INDUCTION
from mecheval.paper.claims.readings import (
    INDUCTIVE,
    TREE,
    accuracy_at_most,
    mechanisms,
    share_at_least,
)
from mecheval.report.claims import claim
from mecheval.report.evidence import Cell, Evidence
from mecheval.report.numbers import Number, count_at_least, gaps

BARE = "mamba:d_conv=0"


@claim(
    "figure1",
    "abstract, §1",
    says="Attention and Based learn induction on AR and ATR, Mamba retrieves directly; without "
    "its convolution Mamba fails at AR and learns induction on ATR.",
    rule="the verdict; accuracy at most 50 % for Mamba without convolution on AR",
    seen=True,
)
def summary(runs: Evidence) -> Iterator[Number]:
    for task, label in (("recall", "AR, "), (TREE, "ATR, ")):
        yield from mechanisms(runs, INDUCTION, [Cell(name, task) for name in INDUCTIVE], label)
        yield from mechanisms(runs, DIRECT, [Cell("mamba", task)], label)
    yield from accuracy_at_most(runs, {Cell(BARE): 50})
    yield from mechanisms(runs, INDUCTION, [Cell(BARE, TREE)], "ATR, ")


@claim(
    "figure2",
    "§3",
    says="A corrupt key takes the answer from Attention, and its clean value gives it back.",
    rule="at least 50 points of likelihood are lost; a share of at least 50 % at the value",
    seen=True,
)
def intervention(runs: Evidence) -> Iterator[Number]:
    cell = Cell("attention")
    lost = gaps(runs.likelihood(cell, "clean"), runs.likelihood(cell, "corrupt"))
    yield count_at_least(50, f"{cell}: points of likelihood lost with the key", lost)
    yield share_at_least(runs, cell, "value")


OVERVIEW = (summary, intervention)
