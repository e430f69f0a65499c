"""The sentence of a verdict: every statement with the number that belongs to it.

A single verdict says how many resamples of its documents agree, those of several seeds in how many
seeds it is so. Whatever has a second layer, a second mechanism or too few documents is said.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mecheval.interventions.classify import (
    DIRECT,
    INDUCTION,
    MIXED,
    UNSOLVED,
    holder,
    mechanism_shares,
    role_shares,
    shares_in,
)
from mecheval.interventions.verdict import FEW, Verdict
from mecheval.metrics.statistics import proportion_interval

NOTABLE = 0.25  # share from which a second layer or place is named
NOTHING = 0.05  # share below which a place holds nothing
SPLIT = 0.1  # a mechanism is named if it serves, by its interval, more documents than this
MOST = 0.75  # proportion of documents below which it is said how many the mechanism is about
NEGLIGIBLE, SMALL = 0.01, 0.05  # lost likelihood: an interval within them shows no use of the key
STORED = {INDUCTION: "each key is stored with its value"}
VERBS = {
    DIRECT: "carries the answer straight to the query",
    INDUCTION: "looks the pair up later",
}
FINDS = "finds them there"
Record = Mapping[str, Any]


def sentence(*records: Record) -> str:
    """Return the whole sentence for a recorded verdict, or for those of several seeds."""
    return ": ".join(phrases(*records))


def phrases(*records: Record) -> tuple[str, str]:
    """Return the two halves of the sentence: the mechanism with its number, and what it means."""
    verdicts = [Verdict.from_dict(record) for record in records]
    counts = Counter(verdict.mechanism for verdict in verdicts)
    mechanism = counts.most_common(1)[0][0]
    agreeing = [verdict for verdict in verdicts if verdict.mechanism == mechanism]
    if len(verdicts) == 1:
        return _heading(verdicts[0]), _explain(agreeing)
    others = [f"{name} in {k}" for name, k in counts.most_common() if name != mechanism]
    return ", ".join([f"{mechanism} in {_seeds(agreeing, verdicts)}", *others]), _explain(agreeing)


def layers_text(*records: Record) -> str:
    """Return the layers that retrieve: `1 (54 %)`, `0 and 1`, or by seeds `1 (2 of 3), 0 (1 of 3)`.

    The records have the same mechanism. In a model whose layers differ it is `1 attention (54 %)`.
    """
    verdicts = [Verdict.from_dict(record) for record in records]
    counts: Counter[str] = Counter()
    for verdict in verdicts:
        several = _layers(verdict)
        layers = several if len(several) > 1 else [verdict.layer]
        names = [f"{layer} {_kind(layer, verdict.kinds)}".strip() for layer in layers]
        counts[" and ".join(names)] += 1
    if counts["None"]:
        return "–"
    if len(verdicts) > 1:
        return ", ".join(f"{name} ({k} of {len(verdicts)})" for name, k in counts.most_common())
    (name,), sure = counts, verdicts[0].layer_confidence
    return name if " and " in name or sure is None else f"{name} ({percent(sure)})"


def layer_name(layer: int | None, kinds: Sequence[str] = ()) -> str:
    """Return `layer 1`, or `layer 1 (attention)` in a model whose layers differ."""
    kind = _kind(layer, kinds)
    return f"layer {layer} ({kind})" if kind else f"layer {layer}"


def percent(share: float) -> str:
    """Format a share in whole per cent; what is not quite all is not 100 %."""
    if 0.995 <= share < 1:
        return "> 99 %"
    return f"{round(100 * share) + 0} %".replace("-", "−")


def _heading(verdict: Verdict) -> str:
    if verdict.mechanism not in (MIXED, UNSOLVED) and (split := _split([verdict])):
        return split
    if verdict.only_possible:
        return verdict.mechanism
    if verdict.confidence is None:
        few = f"{verdict.documents or 0} of at least {FEW}"
        return f"{verdict.mechanism} (too few documents, {few}, for a confidence)"
    drawn = f" of {verdict.seeds} seeds" if verdict.seeds > 1 else ""
    return f"{verdict.mechanism} ({percent(verdict.confidence)} of resamples{drawn})"


def _explain(verdicts: Sequence[Verdict]) -> str:
    """Say what the verdicts of one mechanism mean."""
    mechanism = verdicts[0].mechanism
    if mechanism == UNSOLVED:
        return _explain_unsolved(verdicts)
    if all(verdict.only_possible for verdict in verdicts):
        return "with one layer the architecture allows no other"
    split = _split(verdicts)
    if mechanism == MIXED:
        return split or _explain_mixed(verdicts)
    if split and len(verdicts) == 1:
        n = sum(verdicts[0].by_mechanism.values())
        return f"each of the {n} documents that lose enough is judged alone"
    parts = [_stored(verdicts), _retrieved(verdicts), split or _undecided(verdicts)]
    parts.append(_judged(verdicts))
    return "; ".join(part for part in parts if part)


def _stored(verdicts: Sequence[Verdict]) -> str:
    """Say where the pair is stored, and what else restores a part of the answer."""
    mean, layers = _mean_shares(verdicts)
    mechanism = verdicts[0].mechanism
    if mechanism == DIRECT:
        inputs = [role_shares(mean, n) for n in range(1, layers)]
        share, role = max(
            ((shares[role], role) for shares in inputs for role in ("value", "next_key")),
            default=(0.0, "value"),
        )
        if share < NOTHING:
            return "nothing is stored at the value"
        return f"{percent(share)} is also restored at the {_word(role)}"
    texts = [STORED.get(mechanism, "key and value are joined one token after the pair")]
    # later inputs have the query restored by layers that looked the pair up
    first = min(min(verdict.by_layer, default=1) for verdict in verdicts)
    for name, share in mechanism_shares(mean, first).items():
        if name != mechanism and share >= NOTABLE:
            texts.append(f"{percent(share)} also by {name}")
    return ", ".join(texts)


def _retrieved(verdicts: Sequence[Verdict]) -> str:
    """Say which layer retrieves, with its own number, or which layers share the work."""
    mechanism, kinds = verdicts[0].mechanism, verdicts[0].kinds
    shared = [verdict for verdict in verdicts if len(_layers(verdict)) > 1]
    if shared:
        layers = sorted({layer for verdict in shared for layer in _layers(verdict)})
        means = [np.mean([v.by_layer.get(layer, 0.0) for v in shared]) for layer in layers]
        restored = " / ".join(percent(float(mean)) for mean in means)
        which = f", in {_seeds(shared, verdicts)}" if len(verdicts) > 1 else ""
        names = " and ".join(layer_name(n, kinds).removeprefix("layer ") for n in layers)
        return f"retrieved in layers {names} ({restored} restored{which})"
    verb = VERBS.get(mechanism, FINDS)
    counts = Counter(verdict.layer for verdict in verdicts)
    if len(verdicts) == 1:
        name, sure = layer_name(verdicts[0].layer, kinds), verdicts[0].layer_confidence
        return f"{name} {verb}" + (f" ({percent(sure)})" if sure is not None else "")
    (layer, k), *others = counts.most_common()
    rest = [f"{layer_name(other, kinds)} in {m} of {len(verdicts)}" for other, m in others]
    return ", ".join([f"{layer_name(layer, kinds)} {verb} (in {k} of {len(verdicts)})", *rest])


def _kind(layer: int | None, kinds: Sequence[str]) -> str:
    return kinds[layer] if layer is not None and layer < len(kinds) else ""


def _layers(verdict: Verdict) -> list[int]:
    """Return the layers that retrieve a notable part; a lone one is the verdict's own."""
    return [layer for layer, share in verdict.by_layer.items() if share >= NOTABLE]


def _explain_mixed(verdicts: Sequence[Verdict]) -> str:
    """Name what restores how much at the first input at which no one place decides."""
    mean, layers = _mean_shares(verdicts)
    if layers == 1:
        share = mean.get(("blocks.0.mixer_out", "query"), 0.0)
        return f"the mixer's output at the query restores only {percent(share)}"
    for layer in range(1, layers):
        if holder(mean, layer, verdicts[0].thresholds) == MIXED:
            by_share = sorted(role_shares(mean, layer).items(), key=lambda item: -item[1])
            most = [item for item in by_share if item[1] >= NOTABLE] or by_share[:1]
            texts = [f"{_word(role)} {percent(share)}" for role, share in most]
            place = layer_name(layer, verdicts[0].kinds)
            return f"no one place decides at the input of {place}: {', '.join(texts)}"
    return "no one place decides"


def _explain_unsolved(verdicts: Sequence[Verdict]) -> str:
    """Say how much the corruption takes, against what a verdict requires."""
    limit = 100 * verdicts[0].thresholds.solved
    losses = [verdict.lost for verdict in verdicts if verdict.lost]
    if not losses:
        return "corrupting the key takes too little likelihood"
    values = [100 * lost.value for lost in losses]
    grades = {_grade(lost.value, lost.low, lost.high) for lost in losses}
    grade = grades.pop() if len(grades) == 1 else "differs between seeds in its use of the key"
    points, ends = f"{_points(min(values))} to {_points(max(values))}", ""
    if len(losses) == 1:
        points, low, high = _points(values[0]), losses[0].low, losses[0].high
        if low is not None and high is not None:
            ends = f" [{_points(100 * low)}, {_points(100 * high)}]"
    return f"{grade}: corrupting it takes {points} of the {limit:g} points required{ends}"


def _grade(value: float, low: float | None, high: float | None) -> str:
    if low is None or high is None:  # an old record has no interval: small values stay undecided
        low, high = value - SMALL + NEGLIGIBLE, value + SMALL - NEGLIGIBLE
    if high < -NEGLIGIBLE:
        return "is misled by the key"
    if low >= NEGLIGIBLE:
        return "uses the key, but below the threshold"
    return "shows no use of the key" if high < SMALL else "may or may not use the key"


def _split(verdicts: Sequence[Verdict]) -> str:
    """Name the mechanisms that serve a notable part of the documents, if there are several."""
    counts = _documents(verdicts)
    own, n = verdicts[0].mechanism, counts.total()
    texts: list[str] = []
    for name, k in sorted(counts.items(), key=lambda item: (item[0] != own, -item[1])):
        low, high = proportion_interval(k, n)
        if name == own or low > SPLIT:
            ends = f" [{round(100 * low)}, {round(100 * high)}]" if len(verdicts) == 1 else ""
            if name not in (MIXED, UNSOLVED):
                unit = "" if texts else " of documents"
                texts.append(f"{name} in {percent(k / n)}{unit}{ends}")
    return ", ".join(texts) if len(texts) > 1 else ""


def _undecided(verdicts: Sequence[Verdict]) -> str:
    """Say for how many documents, judged alone, no one place decides."""
    counts = _documents(verdicts)
    mixed, n = counts[MIXED], counts.total()
    if not mixed or proportion_interval(mixed, n)[0] <= SPLIT:
        return ""
    return f"mixed in {percent(mixed / n)} of documents"


def _judged(verdicts: Sequence[Verdict]) -> str:
    """Say how many documents lose enough, if they are by their interval not most of them."""
    n = sum(verdict.documents or 0 for verdict in verdicts)
    judged = _documents(verdicts).total()
    if not n or not judged or proportion_interval(judged, n)[1] >= MOST:
        return ""
    limit = 100 * verdicts[0].thresholds.solved
    return f"only {percent(judged / n)} of documents lose {limit:g} points or more"


def _documents(verdicts: Sequence[Verdict]) -> Counter[str]:
    """Count the documents of all verdicts by the mechanism that serves them."""
    counts: Counter[str] = Counter()
    for verdict in verdicts:
        counts.update(verdict.by_mechanism)
    return counts


def _mean_shares(verdicts: Sequence[Verdict]) -> tuple[dict[tuple[str, str], float], int]:
    several = [shares_in(verdict.evidence) for verdict in verdicts]
    places = dict.fromkeys(place for mean, _ in several for place in mean)
    means = {}
    for place in places:
        means[place] = float(np.mean([mean[place] for mean, _ in several if place in mean]))
    return means, max(layers for _, layers in several)


def _seeds(some: Sequence[Verdict], all_of_them: Sequence[Verdict]) -> str:
    return f"{len(some)} of {len(all_of_them)} seeds"


def _points(value: float) -> str:
    """Format points of likelihood: one digit after the point only where it matters."""
    digits = 0 if abs(value) >= 9.95 else 1
    text = f"{round(value, digits) + 0.0:.{digits}f}"  # adding 0.0 turns −0 into 0
    return text.replace("-", "−")


def _word(role: str) -> str:
    return role.replace("_", " ")
