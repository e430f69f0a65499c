"""The paper's claims, section by section, and our rules for whether they hold.

A rule is about the widest models of a study unless it names a width. Accuracies are on test; a
share is what is restored of what the corruption of the key took, at the input of layer 1 unless
another place is named.
"""

from collections.abc import Sequence

from mecheval.paper.claims.appendix import APPENDIX
from mecheval.paper.claims.ar import AR
from mecheval.paper.claims.atr import ATR
from mecheval.paper.claims.beyond import BEYOND
from mecheval.paper.claims.depth import DEPTH
from mecheval.paper.claims.overview import OVERVIEW
from mecheval.paper.claims.predicted import PREDICTED
from mecheval.report.claims import Claim

CLAIMS = (*OVERVIEW, *AR, *ATR, *APPENDIX, *DEPTH, *BEYOND, *PREDICTED)


def claims() -> Sequence[Claim]:
    """Return the claims in the paper's order; pyproject.toml registers them."""
    return CLAIMS
