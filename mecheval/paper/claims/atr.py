"""Claims of section 5, on associative treecall."""

from collections.abc import Iterator

from mecheval.interventions.verdict import DIRECT, INDUCTION
from mecheval.paper.claims.readings import (
    DIRECT_ONES,
    INDUCTIVE,
    TREE,
    accuracy_at_least,
    lead,
    mechanisms,
)
from mecheval.report.claims import claim
from mecheval.report.evidence import Cell, Evidence
from mecheval.report.numbers import MARGIN, Number, at_least, count_at_least, no_worse
from mecheval.sweeps.recipe import ARCHITECTURES

MEMORY = 20  # per cent of likelihood; of 20 terminals a guess has 5
BARE = Cell("mamba:d_conv=0", TREE)


@claim(
    "figure7",
    "abstract, §5.2",
    says="ATR is solved as AR is: induction in Attention, Based and BaseConv, "
    "direct retrieval in the others.",
    rule="the verdict",
)
def atr_mechanisms(runs: Evidence) -> Iterator[Number]:
    inductive = [Cell(name, TREE) for name in (*INDUCTIVE, "base_conv")]
    yield from mechanisms(runs, INDUCTION, inductive)
    yield from mechanisms(runs, DIRECT, [Cell(name, TREE) for name in DIRECT_ONES])


@claim(
    "figure7",
    "§5.2",
    says="Mamba matches or outperforms all others on ATR at all widths.",
    rule=f"at every width no worse than any other, with a margin of {MARGIN} points (the widest "
    "alone, and a margin of one, until the runs had been seen)",
    seen=True,
)
def atr_mamba_best(runs: Evidence) -> Iterator[Number]:
    for mamba in runs.widths(Cell("mamba", TREE)):
        for name in ARCHITECTURES:
            other = Cell(name, TREE, width=mamba.width)
            if name != "mamba":
                yield no_worse(f"Mamba less {other}", lead(runs, mamba, other))


@claim(
    "figure7",
    "§5.2",
    says="With a corrupt key the likelihood on ATR is well above 0: likely pairs are memorised.",
    rule=f"at every width, a likelihood of at least {MEMORY} % with a corrupt key (a guess has 5)",
    seen=True,
)
def atr_memorised(runs: Evidence) -> Iterator[Number]:
    for name in ARCHITECTURES:
        for cell in runs.widths(Cell(name, TREE)):
            corrupt = runs.likelihood(cell, "corrupt")
            yield count_at_least(MEMORY, f"{cell}: likelihood with a corrupt key", corrupt)


@claim(
    "figure8",
    "abstract, §5.3",
    says="Without convolution Mamba learns ATR, not as well, and by two-layer induction.",
    rule="accuracy at least 75 %, less than with it; the verdict with no tap and one",
)
def mamba_without_convolution(runs: Evidence) -> Iterator[Number]:
    yield from accuracy_at_least(runs, {BARE: 75})
    mamba, one = Cell("mamba", TREE), Cell("mamba:d_conv=1", TREE)
    yield at_least(0, "with convolution less without", lead(runs, mamba, BARE))
    yield from mechanisms(runs, INDUCTION, (BARE, one))


@claim(
    "figure8",
    "§5.3",
    says="Mamba without convolution is still ahead of Based and BaseConv on ATR.",
    rule="the differences are at least 0",
    also=("figure7",),
    seen=True,
)
def mamba_bare_ahead(runs: Evidence) -> Iterator[Number]:
    for name in ("based", "base_conv"):
        other = Cell(name, TREE)
        yield at_least(0, f"{BARE} less {other}", lead(runs, BARE, other))


ATR = (
    *(atr_mechanisms, atr_mamba_best, atr_memorised),
    *(mamba_without_convolution, mamba_bare_ahead),
)
