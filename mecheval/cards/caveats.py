"""When not to trust a card: what its own numbers say against it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mecheval.cards.facts import Line
from mecheval.interventions.verdict import MIXED
from mecheval.report import labels as names
from mecheval.report.study import Study
from mecheval.tasks import tasks

SURE, RIGHT, PERFECT, WIDE, ENOUGH, ALIKE = 0.9, 0.9, 0.99, 0.1, 3, 1.5


@dataclass(frozen=True)
class Evidence:
    """What a caveat may look at: the subject's lines and those of the baselines."""

    study: Study
    own: Sequence[Line]
    others: Sequence[Line]
    cells: Sequence[Mapping[str, Any]]
    costs: Sequence[Mapping[str, Any]]


def caveats(evidence: Evidence) -> list[str]:
    return [said for caveat in CAVEATS for said in caveat(evidence)]


def _one_scale(evidence: Evidence) -> Iterator[str]:
    run = evidence.study.runs.iloc[0]
    longest = max(tasks.build(task).max_len for task in evidence.study.field("task"))
    size = f"width {run['model.d_model']}, {run['model.layers']} layers, documents of at most {longest} tokens"
    yield (f"One scale: {size}. Wider, deeper, or on longer documents, the same mixer may recall in another way.")


def _no_mechanism(evidence: Evidence) -> Iterator[str]:
    for line in evidence.own:
        if not line.solved:
            judged = "not solved" if line.mechanism else "without a verdict (no site that one needs)"
            why = judged if line.accuracy else f"not measured ({line.state})"
            yield f"{names.task(line.task)} is {why}: nothing can be said about how it recalls there."


def _only_in_part(evidence: Evidence) -> Iterator[str]:
    for line in evidence.own:
        if line.solved and line.accuracy and line.accuracy.value < RIGHT:
            said = f"{line.accuracy.value:.0%} of the answers are right; the verdict is about what it has learned"
            yield f"{names.task(line.task)}: {said}."


def _mixed(evidence: Evidence) -> Iterator[str]:
    for line in evidence.own:
        if line.mechanism == MIXED:
            yield f"{names.task(line.task)}: the verdict is mixed; the heat map says more than the word."


def _seeds(evidence: Evidence) -> Iterator[str]:
    for line in evidence.own:
        task = names.task(line.task)
        if line.agree < line.judged:
            yield f"{task}: seeds disagree, {line.agree} of {line.judged} say {line.mechanism}."
        if 0 < line.judged < ENOUGH:
            yield f"{task}: {line.judged} seed{'s' * (line.judged > 1)} at the chosen rate, fewer than {ENOUGH}."
        if line.solved and line.confidence is not None and line.confidence < SURE:
            yield f"{task}: only {line.confidence:.0%} of the resampled documents give this verdict."


def _wide(evidence: Evidence) -> Iterator[str]:
    for line in evidence.own:
        if line.accuracy and line.accuracy.high - line.accuracy.low > WIDE:
            ends = f"{line.accuracy.low:.0%} to {line.accuracy.high:.0%}"
            yield f"{names.task(line.task)}: the accuracy is only known to be {ends}; more seeds would help."


def _rates(evidence: Evidence) -> Iterator[str]:
    for line in evidence.own:
        tried = [rate["rate"] for rate in line.rates]
        if line.rate is not None and len(tried) == 1:
            yield f"{names.task(line.task)}: one rate was tried, {line.rate:g}."
        elif line.accuracy and line.accuracy.value < PERFECT and line.rate in (min(tried), max(tried)):
            ends = f"{min(tried):g} to {max(tried):g}"
            yield f"{names.task(line.task)}: the best rate, {line.rate:g}, is at the edge of those tried ({ends})."


def _lost(evidence: Evidence) -> Iterator[str]:
    for line in evidence.own:
        lost = [f"{n} {name}" for name, n in line.outcomes.items() if n and name != "done"]
        if lost:
            yield f"{names.task(line.task)}: of {sum(line.outcomes.values())} runs, {', '.join(lost)}."


def _baselines(evidence: Evidence) -> Iterator[str]:
    for line in evidence.others:
        if not line.solved:
            yield f"{names.task(line.task)}: {line.shown} has not solved it, and is no yardstick here."


def _no_inner_sites(evidence: Evidence) -> Iterator[str]:
    if evidence.cells and not any(".mixer." in cell["site"] for cell in evidence.cells):
        yield "The mixer has no sites inside: what happens within a layer cannot be seen, only between layers."


def _size(evidence: Evidence) -> Iterator[str]:
    mine, *others = evidence.costs
    for other in others:
        ratio = mine["parameters_without_embedding"] / max(other["parameters_without_embedding"], 1)
        if not 1 / ALIKE < ratio < ALIKE:
            yield (
                f"Equal width is not equal size: {ratio:.2g} times the parameters of "
                f"{names.architecture(other['architecture'])}, embeddings apart."
            )


def _state(evidence: Evidence) -> Iterator[str]:
    if not evidence.costs[0]["state_bytes"]:
        yield "The size of its state is unknown: the mixer has no state_size(tokens)."


CAVEATS: tuple[Callable[[Evidence], Iterator[str]], ...] = (
    _no_mechanism,
    _only_in_part,
    _mixed,
    _seeds,
    _lost,
    _wide,
    _rates,
    _baselines,
    _no_inner_sites,
    _size,
    _state,
    _one_scale,
)
