"""Claims beyond the paper's text: queries of two hops, and the authors' reversed queries."""

from collections.abc import Iterator

from mecheval.paper.claims.ar import LOSERS, SOLVERS
from mecheval.paper.claims.readings import accuracy_at_least, accuracy_at_most
from mecheval.report.claims import claim
from mecheval.report.evidence import Cell, Evidence
from mecheval.report.numbers import Number, count_at_least, gaps
from mecheval.sweeps.recipe import ARCHITECTURES

REVERSED, GRANDPARENT = "recall:query=value", "treecall:query=grandparent"


@claim(
    "grandparent",
    "our question",
    says="Are grandparents as easy as siblings? The paper leaves queries of two hops to others.",
    rule="accuracy at least 80 % with two layers; asked once the runs had been seen: a corrupt key "
    "takes at least 20 points of the answer's likelihood, as a verdict wants it",
)
def grandparents(runs: Evidence) -> Iterator[Number]:
    cells = [Cell(name, GRANDPARENT) for name in ARCHITECTURES]
    yield from accuracy_at_least(runs, dict.fromkeys(cells, 80))
    for cell in cells:
        lost = gaps(runs.likelihood(cell, "clean"), runs.likelihood(cell, "corrupt"))
        yield count_at_least(20, f"{cell}: points of likelihood lost with the key", lost)


@claim(
    "reverse",
    "the authors' numbers, not in the text",
    says="Asked for the key of a value, the same architectures solve AR and the same fail.",
    rule="with three layers, accuracy at least 90 % for Attention and Based and 75 % for Mamba and "
    "DeltaNet, at most 50 % for Hyena, H3 and BaseConv",
)
def reversed_queries(runs: Evidence) -> Iterator[Number]:
    for ask, bounds in ((accuracy_at_least, SOLVERS), (accuracy_at_most, LOSERS)):
        yield from ask(runs, {Cell(n, REVERSED, layers=3): b for n, b in bounds.items()})


BEYOND = (grandparents, reversed_queries)
