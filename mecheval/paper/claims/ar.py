"""Claims of section 4, on associative recall."""

from collections.abc import Iterator

from mecheval.interventions.verdict import DIRECT, INDUCTION
from mecheval.paper.claims.readings import (
    DIRECT_ONES,
    ENOUGH,
    INDUCTIVE,
    LITTLE,
    accuracy_at_least,
    accuracy_at_most,
    mechanisms,
    share_at_least,
    share_at_most,
)
from mecheval.report.claims import claim
from mecheval.report.evidence import Cell, Evidence
from mecheval.report.numbers import (
    Number,
    at_most,
    count_at_least,
    count_at_most,
    gaps,
    of_runs,
)

SOLVERS = {"attention": 90, "based": 90, "mamba": 75, "delta_net": 75}
LOSERS = {"hyena": 50, "h3": 50, "base_conv": 50}
ALMOST_ALL = 95
ALIKE = 10  # points of likelihood between two curves that are roughly the same
FROM_WIDTH = 32  # where the paper's Attention is perfect
CONVOLUTION = "blocks.{}.mixer.conv_out"
BEHIND = "behind layer 0's convolution"


@claim(
    "figure3",
    "abstract, §4.2",
    says="Attention and Based solve AR; Mamba and DeltaNet are close behind.",
    rule="accuracy at least 90 % for the first two, 75 % for the others",
)
def ar_solved(runs: Evidence) -> Iterator[Number]:
    yield from accuracy_at_least(runs, {Cell(name): bound for name, bound in SOLVERS.items()})


@claim(
    "figure3",
    "abstract, §4.2",
    says="Hyena, H3 and BaseConv fail at AR.",
    rule="accuracy at most 50 %",
)
def ar_failed(runs: Evidence) -> Iterator[Number]:
    yield from accuracy_at_most(runs, {Cell(name): bound for name, bound in LOSERS.items()})


@claim(
    "figure3",
    "§4.2",
    says="Likelihood separates Attention, perfect from d = 32 on, from all SSMs but Based, "
    "whose curve over widths is roughly the same.",
    rule="at every width from 32 on: likelihood at least 95 % for Attention, at most 95 % for all "
    "others but Based, and Attention at most 10 points above Based",
    seen=True,
)
def ar_likelihood(runs: Evidence) -> Iterator[Number]:
    for attention in runs.widths(Cell("attention")):
        if not attention.width or attention.width < FROM_WIDTH:
            continue
        best = runs.likelihood(attention, "clean")
        yield count_at_least(ALMOST_ALL, f"{attention}: likelihood", best)
        for name in (*DIRECT_ONES, "base_conv"):
            other = Cell(name, width=attention.width)
            likelihood = runs.likelihood(other, "clean")
            yield count_at_most(ALMOST_ALL, f"{other}: likelihood", likelihood)
        based = runs.likelihood(Cell("based", width=attention.width), "clean")
        yield at_most(ALIKE, f"{attention}: likelihood less Based's", gaps(best, based))


@claim(
    "figure3",
    "abstract, §4.2",
    says="Attention and Based store each key at its value: induction.",
    rule="the verdict; a share of at least 50 % at the value",
)
def ar_induction(runs: Evidence) -> Iterator[Number]:
    yield from mechanisms(runs, INDUCTION, map(Cell, INDUCTIVE))
    for name in INDUCTIVE:
        yield share_at_least(runs, Cell(name), "value")


@claim(
    "figure3",
    "abstract, §4.2",
    says="The other SSMs retrieve directly: nothing is stored at the value.",
    rule="the verdict",
)
def ar_direct(runs: Evidence) -> Iterator[Number]:
    yield from mechanisms(runs, DIRECT, map(Cell, DIRECT_ONES))


@claim(
    "figure3",
    "§4.2",
    says="They do so at every width that learns the task.",
    rule="the verdict, at each width but the largest, of the seeds that solve the task",
    seen=True,
)
def ar_every_width(runs: Evidence) -> Iterator[Number]:
    for names, mechanism in ((INDUCTIVE, INDUCTION), (DIRECT_ONES, DIRECT)):
        for name in names:
            yield from mechanisms(runs, mechanism, runs.widths(Cell(name))[:-1])


@claim(
    "figure3",
    "§4.2",
    says="The best of them do so in layer 0: the answer is at the query before layer 1.",
    rule="a share of at least 50 % at the query",
)
def ar_first_layer(runs: Evidence) -> Iterator[Number]:
    for name in ("mamba", "delta_net"):
        yield share_at_least(runs, Cell(name), "query")


@claim(
    "figure3",
    "§4.2",
    says="Of Mamba only the model of d = 32 delays retrieval to layer 1.",
    rule="a share of at least 50 % at the key for d = 32, at the query for every other width",
    seen=True,
)
def ar_delayed(runs: Evidence) -> Iterator[Number]:
    for mamba in runs.widths(Cell("mamba")):
        yield share_at_least(runs, mamba, "key" if mamba.width == FROM_WIDTH else "query")


@claim(
    "figure4a",
    "§4.3",
    says="Mamba needs its short convolution on AR, and d_conv = 2 is the step.",
    rule="accuracy at most 50 % without and with one tap; two taps give at least 20 points more "
    "in the same seed",
)
def mamba_convolution(runs: Evidence) -> Iterator[Number]:
    none, one, two = (Cell(f"mamba:d_conv={taps}") for taps in range(3))
    yield from accuracy_at_most(runs, {none: 50, one: 50})
    step = gaps(runs.accuracy(two), runs.accuracy(one))
    yield count_at_least(20, "d_conv 2 less 1: points", step)


@claim(
    "figure4a",
    "§4.3",
    says="No Mamba stores the key at the value.",
    rule="a share of at most 40 % at the value, at every width and in more than half of all runs "
    "that solve the task (the widest alone until the runs had been seen)",
    seen=True,
)
def mamba_not_at_value(runs: Evidence) -> Iterator[Number]:
    for name in ("mamba:d_conv=2", "mamba:d_conv=3", "mamba"):
        for cell in runs.widths(Cell(name)):
            yield share_at_most(runs, cell, "value")
        every = runs.share_of_runs(Cell(name), "value")
        what = f"{Cell(name)}, every width and rate: share at the value"
        yield of_runs(count_at_most(LITTLE, what, every))


@claim(
    "figure4b",
    "§4.3",
    says="Based needs a short convolution of two taps or more; an implicit long one harms it.",
    rule="accuracy at most 50 % with one tap and with the long one, at least 90 % with 2, 3 and 4",
)
def based_convolution(runs: Evidence) -> Iterator[Number]:
    worse = ("based:kernel=1", "based:kernel=long")
    better = ("based:kernel=2", "based", "based:kernel=4")
    yield from accuracy_at_most(runs, dict.fromkeys(map(Cell, worse), 50))
    yield from accuracy_at_least(runs, dict.fromkeys(map(Cell, better), 90))


@claim(
    "figure5",
    "abstract, §4.4",
    says="Mamba does do induction: a short convolution takes the key to its value or to the "
    "next key.",
    rule="at every width, a share of at least 50 % behind a convolution of either layer at the "
    "value or at the next key, whichever is most",
    seen=True,
)
def mamba_induction(runs: Evidence) -> Iterator[Number]:
    for mamba in runs.widths(Cell("mamba")):
        best: dict[int, float] = {}
        for layer in range(2):
            for role in ("value", "next_key"):
                for seed, share in runs.share(mamba, role, CONVOLUTION.format(layer)).items():
                    best[seed] = max(share, best.get(seed, share))
        what = f"{mamba}: largest share behind a convolution at the value or next key"
        yield count_at_least(ENOUGH, what, best)


@claim(
    "figure5",
    "§4.4",
    says="The convolution of Mamba's layer 0 takes the key to the next key.",
    rule="behind it, a share of at least 50 % at the next key and of at most 40 % at the value",
)
def next_key(runs: Evidence) -> Iterator[Number]:
    site = CONVOLUTION.format(0)
    yield share_at_least(runs, Cell("mamba"), "next_key", site, BEHIND)
    yield share_at_most(runs, Cell("mamba"), "value", site, BEHIND)


@claim(
    "figure5",
    "§4.4",
    says="It does so in 9 of the 10 checkpoints that learn the task.",
    rule="a share of at least 50 % behind it at the next key in more than half of all runs, of "
    "any width and rate, that solve the task",
    seen=True,
)
def next_key_checkpoints(runs: Evidence) -> Iterator[Number]:
    shares = runs.share_of_runs(Cell("mamba"), "next_key", CONVOLUTION.format(0))
    yield of_runs(count_at_least(ENOUGH, f"Mamba: share {BEHIND} at the next key", shares))


AR = (
    *(ar_solved, ar_failed, ar_likelihood, ar_induction, ar_direct, ar_every_width),
    *(ar_first_layer, ar_delayed, mamba_convolution, mamba_not_at_value, based_convolution),
    *(mamba_induction, next_key, next_key_checkpoints),
)
