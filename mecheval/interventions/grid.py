"""What interventions give: a number for each document, before anything is averaged."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from jaxtyping import Float64
from numpy import ndarray

from mecheval.interventions.options import Condition
from mecheval.metrics.measurement import Values

Cell = tuple[Condition, str, str]  # condition, site, role
PerDocument = Float64[ndarray, "n head from to"]


@dataclass(frozen=True)
class Grid:
    """What every document did: clean, corrupt, and in every cell. NaN where it has no such token."""

    corrupted: str
    split: str
    clean: Values
    corrupt: Values
    cells: dict[Cell, Values]


def layer_of(site: str) -> int | None:
    """The block a site is in; None before and behind the blocks, and where a stranger's site is in none."""
    found = re.match(r"blocks\.([0-9]+)\.", site)
    return int(found[1]) if found else None


def layers_of(sites: Iterable[str]) -> int:
    """How many blocks a model has, by the names of its sites."""
    return 1 + max((layer for site in sites if (layer := layer_of(site)) is not None), default=-1)


@dataclass(frozen=True)
class Looks:
    """By layer, how much each document's token at one role looks at another. NaN where it has no such token.

    `silent` are the layers whose mixers do not say where they look.
    """

    from_roles: tuple[str, ...]
    to_roles: tuple[str, ...]
    weights: dict[int, PerDocument]
    shares: dict[int, PerDocument]
    silent: tuple[int, ...]
