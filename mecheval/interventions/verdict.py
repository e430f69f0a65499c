"""The verdict: how a model recalls, by what restoring activations brings back (paper §3, §5.2).

The rules are in `classify`, the words in `sentence`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from html import escape
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy import ndarray
from pydantic import TypeAdapter, ValidationError

from mecheval.core.errors import InvalidInput
from mecheval.core.notebook import short
from mecheval.interventions.classify import (
    ASSOCIATION,
    DIRECT,
    INDUCTION,
    MEANS,
    MIXED,
    UNSOLVED,
    Answer,
    Place,
    Shares,
    Thresholds,
    classify,
    count_documents,
    retrieved_by_layer,
    shares_in,
    verdict_sites,
)
from mecheval.interventions.grid import Grid, layer_of
from mecheval.interventions.resampling import (
    Resamples,
    lost_again,
    mean_over_seeds,
    mean_shares,
    widen,
)
from mecheval.metrics.statistics import RESAMPLES, Bounds, mean_interval, seed_interval

__all__ = ["ASSOCIATION", "DIRECT", "INDUCTION", "MEANS", "MIXED", "UNSOLVED", "Lost", "Thresholds"]
__all__ += ["Verdict", "supports_verdict", "verdict", "verdict_sites"]

FEW = 30  # documents below which resampling them says nothing about others
LOST = "clean − corrupt"  # in the evidence


@dataclass(frozen=True)
class Lost:
    """The likelihood that the corruption takes, with its 95 % interval; None in old records."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Verdict:
    """How a model recalls: `layer` retrieves what `role` held before.

    `convolution` is the inner site and role at which a short convolution joined key and value.
    `confidence` is the part of the resamples with the same mechanism, `layer_confidence` with the
    same layer, too; both are None below 30 `documents`. `evidence` holds the shares that decided,
    `lost` the likelihood that the corruption takes. `by_layer` is the share that each layer
    retrieves, `by_mechanism` the number of documents that each mechanism serves, each judged
    alone. `only_possible`: the model has one layer, which allows no other mechanism. `kinds` are
    the mixers of the layers, where these differ.

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
    layer: int | None = None
    role: str | None = None
    convolution: str | None = None
    confidence: float | None = None
    layer_confidence: float | None = None
    evidence: Mapping[str, float] = field(default_factory=dict)
    thresholds: Thresholds = field(default_factory=Thresholds)
    documents: int | None = None
    lost: Lost | None = None
    by_layer: Mapping[int, float] = field(default_factory=dict)
    by_mechanism: Mapping[str, int] = field(default_factory=dict)
    only_possible: bool = False
    seeds: int = 1
    kinds: tuple[str, ...] = ()

    def __str__(self) -> str:
        from mecheval.interventions.sentence import sentence

        return sentence(self.to_dict())

    def __repr__(self) -> str:
        return short(f"Verdict({self})")

    def _repr_html_(self) -> str:
        return f"<div>{escape(str(self))}</div>"

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON has it, with text for the keys of `by_layer`.

        `kinds` is there only if layers differ.
        """
        record = {**asdict(self), "by_layer": {str(n): x for n, x in self.by_layer.items()}}
        kinds = record.pop("kinds")
        return {**record, "kinds": list(kinds)} if kinds else record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "Verdict":
        """Return the verdict that `to_dict` recorded; what an old record lacks is derived."""
        try:
            verdict = _validator()(
                {f.name: record[f.name] for f in fields(cls) if f.name in record}
            )
        except ValidationError as error:
            place = ".".join(map(str, error.errors()[0]["loc"]))
            raise InvalidInput(f"the verdict's {place} is not what was written") from error
        mean, layers = shares_in(verdict.evidence)
        if "by_layer" not in record and layers:
            answer = verdict.mechanism, verdict.layer, verdict.role
            one = layers == 1 and verdict.mechanism == DIRECT
            by_layer = retrieved_by_layer(mean, layers, answer)
            verdict = replace(verdict, by_layer=by_layer, only_possible=one)
        if verdict.lost is None and LOST in verdict.evidence:
            verdict = replace(verdict, lost=Lost(verdict.evidence[LOST]))
        return verdict


@cache  # it takes milliseconds to build, and reports read thousands of records
def _validator() -> Callable[[object], Verdict]:
    return TypeAdapter(Verdict).validate_python


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
    gap_again = mean_over_seeds([widen(lost_again(x), x.mean(), len(x)) for x in gaps], drawn)
    mean, mean_again = mean_shares(several, drawn)
    answer = classify(gap, mean, layers, thresholds)
    documents = sum(len(x) for x in gaps)
    confidence = layer_confidence = None
    if documents >= FEW:
        answers = _classify_resamples(gap_again, mean_again, layers, thresholds)
        confidence = float(np.mean([again[0] == answer[0] for again in answers]))
        layer_confidence = float(np.mean([again == answer for again in answers]))
    names, evidence = verdict_sites(layers), {LOST: gap}
    evidence |= {f"{site} at {role}": x for (site, role), x in mean.items() if site in names}
    counts = sum((count_documents(grid, layers, thresholds) for grid in several), Counter[str]())
    return Verdict(
        *answer,
        convolution=_convolution(mean, thresholds),
        confidence=confidence,
        layer_confidence=layer_confidence,
        evidence=evidence,
        thresholds=thresholds,
        documents=documents,
        lost=Lost(gap, *_lost_interval(gaps)),
        by_layer=retrieved_by_layer(mean, layers, answer),
        by_mechanism=dict(counts.most_common()),
        only_possible=layers == 1 and answer[0] == DIRECT,
        seeds=n,
        kinds=several[0].kinds,
    )


def _lost_interval(gaps: Sequence[Float64[ndarray, "_"]]) -> Bounds:
    """Return the 95 % interval of the lost likelihood: over documents, or over several seeds."""
    if len(gaps) > 1:
        return seed_interval([float(x.mean()) for x in gaps], (-1.0, 1.0))
    return mean_interval(gaps[0], (-1.0, 1.0))


def _classify_resamples(
    gaps: Resamples, shares: Mapping[Place, Resamples], layers: int, limits: Thresholds
) -> list[Answer]:
    answers = []
    for b, gap in enumerate(gaps):
        mean = {place: x[b] for place, x in shares.items() if not np.isnan(x[b])}
        answers.append(classify(gap, mean, layers, limits))
    return answers


def _missing(grids: Sequence[Grid], layers: int) -> list[Place]:
    """List the sites and roles that some grid lacks for a verdict."""
    places = [(site, role) for site in verdict_sites(layers) for role in MEANS]
    return [place for place in places if any(("restored", *place) not in g.cells for g in grids)]


def _convolution(mean: Shares, limits: Thresholds) -> str | None:
    """Name the site behind a short convolution and the role that restore most, if not the key's.

    Where the layer's input already holds the key at this role, no convolution has brought it.
    """
    inner = {place: share for place, share in mean.items() if place[0].endswith("conv_out")}
    if not inner:
        return None
    (site, role), share = max(inner.items(), key=lambda item: item[1])
    before = mean.get((f"blocks.{layer_of(site)}.block_in", role), 0.0)
    joined = share >= limits.holds > before and role in ("value", "next_key")
    return f"{site} at {role}" if joined else None
