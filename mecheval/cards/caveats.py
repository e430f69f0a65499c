"""The caveats of a card: reasons, in its own numbers, not to trust it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mecheval.cards.facts import Estimate, Line
from mecheval.interventions.verdict import MIXED
from mecheval.report import labels
from mecheval.report.study import Study
from mecheval.tasks import tasks

CONFIDENT = 0.9  # share of resamples from which a verdict needs no caveat
ACCURATE, PERFECT = 0.9, 0.99  # accuracies
WIDE = 0.1  # width of an interval
SEEDS = 3
SIMILAR = 1.5  # ratio of parameters up to which two models have about the same size


def caveats(
    study: Study,
    lines: Sequence[Line],
    baselines: Sequence[Line],
    cells: Sequence[Mapping[str, Any]],
    costs: Sequence[Mapping[str, Any]],
) -> list[str]:
    """Return every caveat: on the subject's lines, the baselines, the mixer and the scale."""
    texts = []
    for line in lines:
        reasons = [*_verdict_caveats(line), *_run_caveats(line)]
        reasons += _accuracy_caveats(line, line.accuracy) if line.accuracy else []
        texts += [f"{labels.task(line.task)}{text}" for text in reasons]
    for line in baselines:
        if not line.solved:
            name = f"{labels.task(line.task)}: {line.shown}"
            texts.append(f"{name} has not solved it, so it is no yardstick here.")
    if cells and not any(".mixer." in cell["site"] for cell in cells):
        texts.append("The mixer has no sites inside: only what happens between layers can be seen.")
    texts += _sizes(costs)
    if not costs[0]["state_bytes"]:
        texts.append("The size of its state is unknown: the mixer has no state_size(tokens).")
    return [*texts, _scale(study)]


def _verdict_caveats(line: Line) -> Iterator[str]:
    if not line.solved:
        reason = f"not measured ({line.state})"
        if line.accuracy:
            reason = "not solved" if line.mechanism else "without a verdict (it needs more sites)"
        yield f" is {reason}: nothing can be said about how it is recalled."
    if line.mechanism == MIXED:
        yield ": the verdict is mixed; the heat map says more than the word."
    if line.agree < line.judged:
        yield f": seeds disagree, {line.agree} of {line.judged} say {line.mechanism}."
    if 0 < line.judged < SEEDS:
        seeds = f"{line.judged} seed{'s' * (line.judged > 1)}"
        yield f": {seeds} at the chosen rate, fewer than {SEEDS}."
    if line.solved and line.confidence is not None and line.confidence < CONFIDENT:
        yield f": only {line.confidence:.0%} of the resampled documents give this verdict."


def _accuracy_caveats(line: Line, accuracy: Estimate) -> Iterator[str]:
    if line.solved and accuracy.value < ACCURATE:
        share = f"{accuracy.value:.0%} of the answers are right"
        yield f": {share}; the verdict is about what it has learned."
    if accuracy.high - accuracy.low > WIDE:
        ends = f"{accuracy.low:.0%} to {accuracy.high:.0%}"
        yield f": the accuracy is only known to be {ends}; more seeds would help."
    rates = [rate["rate"] for rate in line.rates]
    if len(rates) > 1 and accuracy.value < PERFECT and line.rate in (min(rates), max(rates)):
        ends = f"{min(rates):g} to {max(rates):g}"
        yield f": the best rate, {line.rate:g}, is at the edge of those tried ({ends})."


def _run_caveats(line: Line) -> Iterator[str]:
    lost = [f"{n} {name}" for name, n in line.outcomes.items() if n and name != "done"]
    if lost:
        yield f": of {sum(line.outcomes.values())} runs, {', '.join(lost)}."
    if line.rate is not None and len(line.rates) == 1:
        yield f": only one rate was tried, {line.rate:g}."


def _sizes(costs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    parameters = "parameters_without_embedding"
    for cost in costs[1:]:
        ratio = costs[0][parameters] / max(cost[parameters], 1)
        if not 1 / SIMILAR < ratio < SIMILAR:
            name = labels.architecture(cost["architecture"])
            size = f"without embeddings it has {ratio:.2g} times the parameters of {name}"
            yield f"Equal width is not equal size: {size}."


def _scale(study: Study) -> str:
    run = study.runs.iloc[0]
    longest = max(tasks.build(task).max_len for task in study.field("task"))
    depths = " and ".join(str(layers) for layers in sorted({*study.runs["model.layers"]}))
    size = f"width {run['model.d_model']}, {depths} layers"
    return (
        f"One scale: {size}, documents of at most {longest} tokens."
        " A wider or deeper model, or longer documents, may give another mechanism."
    )
