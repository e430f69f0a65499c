"""Where each head looks, as rows by role with intervals."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mecheval.interventions.grid import Looks
from mecheval.metrics.statistics import middle, resampled


@dataclass(frozen=True, slots=True)
class Look:
    """The mean weight from one role to another over `n` documents, with its 95 % interval, and the mean share.

    Roles can be the same token (a last pair's next key is the divider), so that shares need not sum to 1 at most.
    """

    layer: int
    head: int
    from_role: str
    to_role: str
    weight: float
    share: float
    n: int
    low: float
    high: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def rows(looks: Looks) -> list[Look]:
    """One row for each layer, head and pair of roles that some document has."""
    return [row for layer in looks.weights for row in _rows(looks, layer)]


def _rows(looks: Looks, layer: int) -> Iterator[Look]:
    # not `interval`: a weight that is 0 or 1 is no count of right answers
    weights, shares = (np.moveaxis(values[layer], 0, -1) for values in (looks.weights, looks.shares))
    counts, again = (~np.isnan(weights)).sum(axis=-1), resampled(weights)
    for head, i, j in np.ndindex(counts.shape):
        n = int(counts[head, i, j])
        if n:
            mean, share = np.nanmean(weights[head, i, j]), np.nanmean(shares[head, i, j])
            ends = middle(again[head, i, j])
            yield Look(
                layer, head, looks.from_roles[i], looks.to_roles[j], float(mean), float(share), n, ends[0], ends[1]
            )
