"""The verdict: how a model recalls, by what restoring activations brings back (paper §3, §5.2).

At the input of every block but the first, the information about a corrupted key is somewhere:

    at the value       the key was stored with its value, for a later layer to find: induction
    at the next key    the same, one token further: association at next_key
    at the key         nothing has moved it yet, or
    at the query       it has arrived: one layer moved it at once, direct retrieval
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from mecheval.core.errors import InvalidInput
from mecheval.core.notebook import short
from mecheval.interventions.grid import Grid
from mecheval.interventions.restoration import shares
from mecheval.metrics.statistics import RESAMPLES, resampled

INDUCTION, ASSOCIATION, DIRECT = "induction", "association at next_key", "direct retrieval"
MIXED, UNSOLVED = "mixed", "unsolved"
MEANS = {"value": INDUCTION, "next_key": ASSOCIATION, "key": DIRECT, "query": DIRECT}
MEANINGS = {
    INDUCTION: "stores each key with its value as it reads; layer {layer} looks the pair up later",
    ASSOCIATION: "joins key and value one token after the pair; layer {layer} finds them there",
    DIRECT: "stores nothing at the value; layer {layer} carries the answer straight to the query",
    MIXED: "several places share the work; no single mechanism",
    UNSOLVED: "has not learned to answer by looking at the key",
}
Place = tuple[str, str]  # site and role
Shares = Mapping[Place, float]
Answer = tuple[str, int | None, str | None]  # mechanism, layer and role
Resamples = Float64[ndarray, " resamples"]


@dataclass(frozen=True)
class Thresholds:
    """The limits that decide a verdict.

    `solved`: likelihood that the corruption must take away; `holds`: share from which a role holds
    the information; `rival`: share from which the role of another mechanism makes it mixed.
    """

    solved: float = 0.2
    holds: float = 0.5
    rival: float = 0.4


@dataclass(frozen=True)
class Verdict:
    """How a model recalls: `layer` retrieves what `role` held before.

    `convolution` is the inner site and role at which a short convolution joined key and value.
    `confidence` is the part of the resamples with the same mechanism, `layer_confidence` with the
    same layer, too; `evidence` holds the shares that decided.

    Examples
    --------
    >>> from mecheval import LanguageModel, ModelConfig, Recall, Verdict, interchange, verdict_sites
    >>> task = Recall(pairs=2, vocab=8)
    >>> model = LanguageModel(ModelConfig("attention", d_model=8), task.vocab_size)
    >>> grid = interchange(model, task, verdict_sites(2), documents=32)
    >>> answer = grid.verdict()
    >>> Verdict.from_dict(answer.to_dict()) == answer
    True
    """

    mechanism: str
    layer: int | None
    role: str | None
    convolution: str | None
    confidence: float
    layer_confidence: float
    evidence: Mapping[str, float]
    thresholds: Thresholds

    def __str__(self) -> str:
        agree = f"{self.confidence:.0%} of resamples agree"
        if self.layer is not None:
            agree += f", {self.layer_confidence:.0%} on layer {self.layer}"
        return f"{self.mechanism}: {meaning(self.to_dict())} ({agree})"

    def __repr__(self) -> str:
        return short(f"Verdict({self})")

    def _repr_html_(self) -> str:
        return f"<div>{escape(str(self))}</div>"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "Verdict":
        """Return the verdict that `to_dict` recorded."""
        return cls(**{**record, "thresholds": Thresholds(**record["thresholds"])})


def meaning(record: Mapping[str, Any]) -> str:
    """Explain the mechanism of a recorded verdict in a few words."""
    mechanism = str(record["mechanism"])
    return MEANINGS.get(mechanism, mechanism).format(layer=record.get("layer"))


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


def supports_verdict(grid: Grid) -> bool:
    """Tell if a grid corrupts the key and has every cell that a verdict reads."""
    return grid.corrupted == "key" and not _missing([grid], grid.layers)


def verdict(
    grids: Grid | Sequence[Grid],
    layers: int | None = None,
    thresholds: Thresholds = Thresholds(),  # noqa: B008, it is frozen
) -> Verdict:
    """Return the verdict for one grid, or for the grids of several seeds together.

    It reads the restored cells of `verdict_sites` at key, value, next_key and query. Documents are
    resampled, and with several grids the seeds, too. `layers` is the grids' own unless given.

    Parameters
    ----------
    grids
        A grid, or the grids of several seeds.
    layers
        Number of layers, by default that of the grids.
    thresholds
        The limits that decide.

    Returns
    -------
    Verdict
        Mechanism, layer and role, with their confidence and the evidence.

    Examples
    --------
    >>> from mecheval import LanguageModel, ModelConfig, Recall, interchange, verdict, verdict_sites
    >>> task = Recall(pairs=2, vocab=8)
    >>> model = LanguageModel(ModelConfig("attention", d_model=8), task.vocab_size)
    >>> grid = interchange(model, task, verdict_sites(2), documents=32)
    >>> verdict(grid).mechanism  # it is not trained
    'unsolved'
    """
    several = [grids] if isinstance(grids, Grid) else list(grids)
    layers = several[0].layers if layers is None else layers
    if missing := _missing(several, layers):
        needs = "the verdict needs the restored cell of"
        raise InvalidInput(f"{needs} {site} at {role}" for site, role in missing)
    n = len(several)
    drawn = np.random.default_rng(n).integers(n, size=(RESAMPLES, n))
    gaps = [grid.clean["likelihood"] - grid.corrupt["likelihood"] for grid in several]
    gap = float(np.mean([x.mean() for x in gaps]))
    gap_again = _mean_over_seeds([resampled(x) for x in gaps], drawn)
    mean, mean_again = _mean_shares(several, drawn)
    answer = _classify(gap, mean, layers, thresholds)
    answers = []
    for b in range(RESAMPLES):
        drawn_shares = {place: x[b] for place, x in mean_again.items() if not np.isnan(x[b])}
        answers.append(_classify(gap_again[b], drawn_shares, layers, thresholds))
    confidence = float(np.mean([again[0] == answer[0] for again in answers]))
    layer_confidence = float(np.mean([again == answer for again in answers]))
    names, evidence = verdict_sites(layers), {"clean − corrupt": gap}
    evidence |= {f"{site} at {role}": x for (site, role), x in mean.items() if site in names}
    convolution = _convolution(mean, thresholds)
    return Verdict(*answer, convolution, confidence, layer_confidence, evidence, thresholds)


def _missing(grids: Sequence[Grid], layers: int) -> list[Place]:
    """List the sites and roles that some grid lacks for a verdict."""
    places = [(site, role) for site in verdict_sites(layers) for role in MEANS]
    return [place for place in places if any(("restored", *place) not in g.cells for g in grids)]


def _classify(gap: float, mean: Shares, layers: int, limits: Thresholds) -> Answer:
    """Return mechanism, layer and role by the rules of docs/verdict.md."""
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
    """Return the role that holds the information at a block's input, or MIXED if no one does."""
    share = {role: mean.get((f"blocks.{layer}.block_in", role), 0.0) for role in MEANS}
    by_mechanism = {
        INDUCTION: share["value"],
        ASSOCIATION: share["next_key"],
        # key and query are two moments of one mechanism: half of it may be read already
        DIRECT: share["key"] + share["query"],
    }
    *others, most = sorted(by_mechanism, key=lambda mechanism: by_mechanism[mechanism])
    rival = any(by_mechanism[other] >= limits.rival for other in others)
    if by_mechanism[most] < limits.holds or rival:
        return MIXED
    return max((role for role in MEANS if MEANS[role] == most), key=lambda role: share[role])


def _convolution(mean: Shares, limits: Thresholds) -> str | None:
    """Name the site behind a short convolution and the role that restore most, if not the key's."""
    inner = {place: share for place, share in mean.items() if place[0].endswith("conv_out")}
    if not inner:
        return None
    (site, role), share = max(inner.items(), key=lambda item: item[1])
    joined = share >= limits.holds and role in ("value", "next_key")
    return f"{site} at {role}" if joined else None


def _mean_shares(
    grids: Sequence[Grid], drawn: ndarray
) -> tuple[dict[Place, float], dict[Place, Resamples]]:
    """Return the mean share of every restored cell over seeds, and over resamples.

    A seed that is not solved has no shares: the mean is over the solved ones, if there are any.
    """
    seeds = []
    for grid in grids:
        by_cell = shares(grid).items()
        seeds.append({cell[1:]: pair for cell, pair in by_cell if cell[0] == "restored"})
    none = np.nan, np.full(RESAMPLES, np.nan)
    mean: dict[Place, float] = {}
    again: dict[Place, Resamples] = {}
    for place in dict.fromkeys(place for seed in seeds for place in seed):
        values, means = zip(*(seed.get(place, none) for seed in seeds), strict=True)
        mean[place] = float(np.nanmean(values))
        again[place] = _mean_over_seeds(means, drawn)
    return mean, again


def _mean_over_seeds(values: Sequence[Resamples], drawn: ndarray) -> Resamples:
    """Return resamples of the mean over seeds: seeds are drawn again, and the documents of each.

    A seed that is NaN is left out.
    """
    again = np.take_along_axis(np.stack(values, axis=1), drawn, axis=1)
    valid = ~np.isnan(again)
    with np.errstate(invalid="ignore"):  # a resample may have no valid seed
        return np.where(valid, again, 0.0).sum(axis=1) / valid.sum(axis=1)
