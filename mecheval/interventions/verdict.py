"""The verdict: how a model recalls, read off what restoring the clean activations brings back (paper §3, §5.2).

At the input of every block but the first, the information about a corrupted key is somewhere:

    at the value       the key was stored where its value stands, for a later layer to find: induction
    at the next key    the same, one token further: association at next_key
    at the key         nothing has moved it yet, or
    at the query       it is there already: one layer moved it at once, direct retrieval
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from mecheval.core.errors import InvalidInput
from mecheval.interventions.grid import Grid
from mecheval.interventions.restoration import shares
from mecheval.metrics.statistics import RESAMPLES, resampled

INDUCTION, ASSOCIATION, DIRECT = "induction", "association at next_key", "direct retrieval"
MIXED, UNSOLVED = "mixed", "unsolved"
MEANS = {"value": INDUCTION, "next_key": ASSOCIATION, "key": DIRECT, "query": DIRECT}
MEANINGS = {  # for somebody who reads the word for the first time
    INDUCTION: "stores each key with its value as it reads; layer {layer} looks the pair up later",
    ASSOCIATION: "joins key and value one token after the pair; layer {layer} finds them there",
    DIRECT: "stores nothing at the value; layer {layer} carries the answer straight to the query",
    MIXED: "several places share the work; no single mechanism",
    UNSOLVED: "has not learned to answer by looking at the key",
}
Place = tuple[str, str]  # site and role
Shares = Mapping[Place, float]


@dataclass(frozen=True)
class Thresholds:
    """`solved`: likelihood that the corruption must take away; `holds`: share from which a role holds the information;
    `rival`: share from which the role of another mechanism makes the answer mixed."""

    solved: float = 0.2
    holds: float = 0.5
    rival: float = 0.4


@dataclass(frozen=True)
class Verdict:
    """`layer` retrieves, and `role` held the information before. `convolution` is the inner site and role at which a
    short convolution has brought key and value together. `confidence` is the part of the resamples that give the same
    mechanism, `layer_confidence` the same layer, too; `evidence` are the numbers it rests on."""

    mechanism: str
    layer: int | None
    role: str | None
    convolution: str | None
    confidence: float
    layer_confidence: float
    evidence: Mapping[str, float]
    thresholds: Thresholds

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "Verdict":
        """Return the verdict that `to_dict` recorded."""
        return cls(**{**record, "thresholds": Thresholds(**record["thresholds"])})


def meaning(found: Mapping[str, Any]) -> str:
    """Of a verdict's mechanism, in words."""
    return MEANINGS.get(found["mechanism"], str(found["mechanism"])).format(layer=found.get("layer"))


def needed(layers: int) -> list[str]:
    """The sites whose cells a verdict reads."""
    return [f"blocks.{layer}.block_in" for layer in range(1, layers)] + [f"blocks.{layers - 1}.mixer_out"]


def judged(grid: Grid, layers: int) -> Verdict | None:
    """The verdict, if the grid has every cell that it rests on."""
    cells = {(site, role) for condition, site, role in grid.cells if condition == "restored"}
    wanted = {(site, role) for site in needed(layers) for role in MEANS}
    return verdict(grid, layers) if wanted <= cells and grid.corrupted == "key" else None


def verdict(
    grids: Grid | Sequence[Grid],
    layers: int,
    thresholds: Thresholds = Thresholds(),  # noqa: B008, it is frozen
) -> Verdict:
    """From the restored cells of `needed` sites at key, value, next_key and query; of one model or of several seeds.

    Resampled are the documents and, if there are several, the seeds.
    """
    several = [grids] if isinstance(grids, Grid) else list(grids)
    _check(several, layers)
    drawn = np.random.default_rng(len(several)).integers(len(several), size=(RESAMPLES, len(several)))
    gaps = [grid.clean["likelihood"] - grid.corrupt["likelihood"] for grid in several]
    gap, gap_again = np.mean([g.mean() for g in gaps]), _again([resampled(g) for g in gaps], drawn)
    mean, again = _mean_shares(several, drawn)
    here = _classified(float(gap), mean, layers, thresholds)
    others = [
        _classified(
            gap_again[b],
            {place: values[b] for place, values in again.items() if not np.isnan(values[b])},
            layers,
            thresholds,
        )
        for b in range(RESAMPLES)
    ]
    confidence = float(np.mean([other[0] == here[0] for other in others]))
    layer_confidence = float(np.mean([other == here for other in others]))
    sites = needed(layers)
    evidence = {"clean − corrupt": float(gap)}
    evidence |= {f"{site} at {role}": value for (site, role), value in mean.items() if site in sites}
    return Verdict(*here, _convolution(mean, thresholds), confidence, layer_confidence, evidence, thresholds)


def _check(grids: Sequence[Grid], layers: int) -> None:
    wanted = [(site, role) for site in needed(layers) for role in MEANS]
    lacking = [place for place in wanted if not all(("restored", *place) in grid.cells for grid in grids)]
    if lacking:
        raise InvalidInput(f"a verdict needs what is restored with {site} at {role}" for site, role in lacking)


def _classified(gap: float, mean: Shares, layers: int, limits: Thresholds) -> tuple[str, int | None, str | None]:
    """Mechanism, layer and role."""
    if gap < limits.solved or not mean:
        return UNSOLVED, None, None
    if layers == 1:
        read = mean.get(("blocks.0.mixer_out", "query"), 0.0) >= limits.holds
        return (DIRECT, 0, "key") if read else (MIXED, None, None)
    holders = [_holder(mean, layer, limits) for layer in range(1, layers)]
    if MIXED in holders:
        return MIXED, None, None
    for role in ("value", "next_key"):
        if role in holders:
            return MEANS[role], layers - 1 - holders[::-1].index(role), role
    return DIRECT, holders.index("query") if "query" in holders else layers - 1, "key"


def _holder(mean: Shares, layer: int, limits: Thresholds) -> str:
    """Where the information is at a block's input, or that it is in no one place."""
    here = {role: mean.get((f"blocks.{layer}.block_in", role), 0.0) for role in MEANS}
    # key and query are two moments of one mechanism: half of it may be read already
    by_mechanism = {INDUCTION: here["value"], ASSOCIATION: here["next_key"], DIRECT: here["key"] + here["query"]}
    *others, most = sorted(by_mechanism, key=lambda mechanism: by_mechanism[mechanism])
    if by_mechanism[most] < limits.holds or any(by_mechanism[other] >= limits.rival for other in others):
        return MIXED
    return max((role for role in MEANS if MEANS[role] == most), key=lambda role: here[role])


def _convolution(mean: Shares, limits: Thresholds) -> str | None:
    """The inner site behind a short convolution, and the role, at which most comes back, unless it is the key's own."""
    inner = {place: share for place, share in mean.items() if place[0].endswith("conv_out")}
    if not inner:
        return None
    (site, role), share = max(inner.items(), key=lambda item: item[1])
    return f"{site} at {role}" if share >= limits.holds and role in ("value", "next_key") else None


def _mean_shares(
    grids: Sequence[Grid], drawn: ndarray
) -> tuple[dict[Place, float], dict[Place, Float64[ndarray, " resamples"]]]:
    """Of every restored cell: over the seeds, and over resamples. A seed that is not solved has no shares; if any is
    solved, they are those of the solved ones."""
    each = [{cell[1:]: found for cell, found in shares(grid).items() if cell[0] == "restored"} for grid in grids]
    none = np.nan, np.full(RESAMPLES, np.nan)
    seeds = {place: [one.get(place, none) for one in each] for one in each for place in one}
    mean = {place: float(np.nanmean([share for share, _ in found])) for place, found in seeds.items()}
    return mean, {place: _again([means for _, means in found], drawn) for place, found in seeds.items()}


def _again(values: Sequence[Float64[ndarray, " resamples"]], drawn: ndarray) -> Float64[ndarray, " resamples"]:
    """Resample b of the mean over seeds: seeds drawn again, each with its own documents drawn again. NaN is no seed."""
    again = np.take_along_axis(np.stack(values, axis=1), drawn, axis=1)
    there = ~np.isnan(again)
    with np.errstate(invalid="ignore"):  # no seed of a resample has any
        return np.where(there, again, 0.0).sum(axis=1) / there.sum(axis=1)
