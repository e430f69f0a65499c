"""The rules of a verdict (docs/verdict.md): from restored shares to a mechanism and its layers.

At the input of every block but the first, the information about a corrupted key is somewhere:

    at the value       the key was stored with its value, for a later layer to find: induction
    at the next key    the same, one token further: association at next_key
    at the key         nothing has moved it yet, or
    at the query       it has arrived: one layer moved it at once, direct retrieval
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from mecheval.interventions.grid import Grid, layers_of

INDUCTION, ASSOCIATION, DIRECT = "induction", "association at next_key", "direct retrieval"
MIXED, UNSOLVED = "mixed", "unsolved"
MEANS = {"value": INDUCTION, "next_key": ASSOCIATION, "key": DIRECT, "query": DIRECT}
Place = tuple[str, str]  # site and role
Shares = Mapping[Place, float]
Answer = tuple[str, int | None, str | None]  # mechanism, layer and role


@dataclass(frozen=True)
class Thresholds:
    """The limits that decide a verdict.

    Parameters
    ----------
    solved
        Likelihood that the corruption must take away.
    holds
        Share from which a role holds the information.
    rival
        Share from which the role of another mechanism makes a verdict mixed.

    Examples
    --------
    >>> from mecheval import Thresholds
    >>> Thresholds(solved=0.1)
    Thresholds(solved=0.1, holds=0.5, rival=0.4)
    """

    solved: float = 0.2
    holds: float = 0.5
    rival: float = 0.4


def verdict_sites(layers: int) -> list[str]:
    """Return the sites that a verdict on so many layers reads.

    Parameters
    ----------
    layers
        Number of the model's blocks.

    Returns
    -------
    list of str
        Names of sites, for `interchange`.

    Examples
    --------
    >>> from mecheval import verdict_sites
    >>> verdict_sites(2)
    ['blocks.1.block_in', 'blocks.1.mixer_out']
    """
    inputs = [f"blocks.{layer}.block_in" for layer in range(1, layers)]
    return [*inputs, f"blocks.{layers - 1}.mixer_out"]


def classify(gap: float, mean: Shares, layers: int, limits: Thresholds) -> Answer:
    """Return mechanism, layer and role by the rules of docs/verdict.md."""
    if gap < limits.solved or not mean:
        return UNSOLVED, None, None
    if layers == 1:
        read = mean.get(("blocks.0.mixer_out", "query"), 0.0) >= limits.holds
        return (DIRECT, 0, "key") if read else (MIXED, None, None)
    holders = [holder(mean, layer, limits) for layer in range(1, layers)]
    if MIXED in holders:
        return MIXED, None, None
    for role in ("value", "next_key"):
        if role in holders:
            return MEANS[role], layers - 1 - holders[::-1].index(role), role
    return DIRECT, holders.index("query") if "query" in holders else layers - 1, "key"


def holder(mean: Shares, layer: int, limits: Thresholds) -> str:
    """Return the role that holds the information at a block's input, or MIXED if no one does."""
    share = role_shares(mean, layer)
    by_mechanism = mechanism_shares(mean, layer)
    *others, most = sorted(by_mechanism, key=lambda mechanism: by_mechanism[mechanism])
    rival = any(by_mechanism[other] >= limits.rival for other in others)
    if by_mechanism[most] < limits.holds or rival:
        return MIXED
    return max((role for role in MEANS if MEANS[role] == most), key=lambda role: share[role])


def role_shares(mean: Shares, layer: int) -> dict[str, float]:
    """Return what each role restores at a block's input."""
    return {role: mean.get((f"blocks.{layer}.block_in", role), 0.0) for role in MEANS}


def mechanism_shares(mean: Shares, layer: int) -> dict[str, float]:
    """Return what the roles of each mechanism restore together at a block's input.

    Key and query are two moments of direct retrieval: half of it may be read already. A negative
    share is none: it must not hide what the other of the two restores.
    """
    shares = dict.fromkeys((INDUCTION, ASSOCIATION, DIRECT), 0.0)
    for role, share in role_shares(mean, layer).items():
        shares[MEANS[role]] += max(share, 0.0)
    return shares


def retrieved_by_layer(mean: Shares, layers: int, answer: Answer) -> dict[int, float]:
    """Return the share that each layer carries to the query; {} without a mechanism.

    It is the rise of the query's share from the layer's input to its output; for the last layer
    the share of the role that still holds the information at its input. Layers before the pair
    was stored retrieve nothing.
    """
    mechanism, last, role = answer
    if last is None or role is None:
        return {}
    if layers == 1:
        return {0: max(mean.get(("blocks.0.mixer_out", "query"), 0.0), 0.0)}
    inputs = {layer: role_shares(mean, layer) for layer in range(1, layers)}
    first = 0
    if mechanism != DIRECT:
        strong = [layer for layer, share in inputs.items() if share[role] == max(share.values())]
        first = min([*strong, last])
    at_query = {0: 0.0} | {layer: share["query"] for layer, share in inputs.items()}
    rises = {n: max(at_query[n + 1] - at_query[n], 0.0) for n in range(first, layers - 1)}
    return {**rises, layers - 1: max(inputs[layers - 1][role], 0.0)}


def count_documents(grid: Grid, layers: int, limits: Thresholds) -> Counter[str]:
    """Count the documents that each mechanism serves, judging each by the rules alone.

    Documents that lose less than `solved` are left out: their shares are quotients of noise.
    """
    gap = grid.clean["likelihood"] - grid.corrupt["likelihood"]
    enough = np.flatnonzero(gap >= limits.solved)
    places = [(site, role) for site in verdict_sites(layers) for role in MEANS]
    shares = np.stack([_document_shares(grid, place, gap)[enough] for place in places], axis=1)
    counts: Counter[str] = Counter()
    for lost, values in zip(gap[enough], shares, strict=True):
        known = {p: float(x) for p, x in zip(places, values, strict=True) if not np.isnan(x)}
        counts[classify(float(lost), known, layers, limits)[0]] += 1
    return counts


def shares_in(evidence: Mapping[str, float]) -> tuple[dict[Place, float], int]:
    """Return the shares that a verdict's evidence holds, and the number of layers it speaks of."""
    mean: dict[Place, float] = {}
    for text, share in evidence.items():
        site, at, role = text.partition(" at ")
        if at:
            mean[site, role] = share
    return mean, layers_of(site for site, _ in mean)


def _document_shares(
    grid: Grid, place: Place, gap: Float64[ndarray, " n"]
) -> Float64[ndarray, " n"]:
    restored = grid.cells["restored", *place]["likelihood"] - grid.corrupt["likelihood"]
    with np.errstate(divide="ignore", invalid="ignore"):  # documents that lose nothing are not read
        return restored / gap
