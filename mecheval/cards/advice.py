"""Advice on a mixer that has not learned a task: each step to try, with its evidence, in order."""

from collections.abc import Iterator, Mapping, Sequence
from math import hypot
from typing import Any

from mecheval.cards.facts import Line
from mecheval.cards.search import wider_rate

Row = Mapping[str, Any]
# Each limit was held against trained models on both sides of it: docs/card.md has them.
FALLING = -0.005  # change of the dev loss in 100 steps: at the end of a cosine it still falls 0.3 %
FARTHER = 0.05  # share of keys beyond the reach: at most as many answers are lost by it
MEMORISES = 0.1  # accuracy on train above that on test: 0.05 where documents are not repeated
DROPS = 0.1  # accuracy above chance lost with more pairs: 0.15 by small states, else 0.07 or less
AT_CHANCE = 0.05  # accuracy above chance: runs at chance had 0.20 to 0.27 where it is 0.25
INSIDE = 0.8  # answers from the document: memorisers had 0.3 to 0.5, runs at chance 0.87 or more
VANISHED = 1e-4  # gradient norm: those that train or stay at chance had 0.006 or more
LEARNED = 0.9  # accuracy on train from which nothing is left to learn: a small gradient is right
PROGRESS = {True: "still falling", False: "stopped improving", None: "not known if still falling"}
RULE = (
    "The dev loss is still falling if the 95 % interval of its slope is below "
    f"{100 * FALLING:g} % in 100 steps, and has stopped improving if the interval is above that; "
    "the slope is that of the logarithm of the dev loss over the last third of the evaluations, at "
    "least four. A curve that has stopped may fall again later. A distance is read if changing a "
    "token there changes the output by 1 % on average."
)


def with_advice(diagnoses: Sequence[Row], lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return the diagnoses with `next`: what to try, and why."""
    by_task = {line.task: line for line in lines}
    answers = []
    for row in diagnoses:
        line = by_task.get(row["task"])
        state = improving(row)
        said = {"improving": state, "progress": PROGRESS[state], "rule": RULE}
        answers.append({**row, **said, "next": advise(row, line)})
    return answers


def improving(row: Row) -> bool | None:
    """Tell whether the dev loss was still falling; None if its interval leaves that open."""
    curve = row["curve"]
    if curve["value"] is None or curve["low"] < FALLING <= curve["high"]:
        return None
    return bool(curve["high"] < FALLING)


def advise(row: Row, line: Line | None) -> list[dict[str, str]]:
    """Return what to try next, the strongest reason first."""
    far, known = [*_reach(row)], [*_memorises(row)]
    steps = [*far, *known, *_falling(row), *_rate(line)]
    # where keys are beyond the reach, more pairs are lost because they are farther away
    steps += [*([] if far else _capacity(row)), *_gradient(row)]
    steps += [] if far or known else _key_unused(row)
    if not steps:
        nothing = "None of the measurements below explains it: compare its curve with a baseline's."
        steps = [("Look at the training curves.", nothing)]
    return [{"try": text, "evidence": evidence} for text, evidence in steps]


def _reach(row: Row) -> Iterator[tuple[str, str]]:
    whole, farther = row["reach"][0], row["farther"]
    if farther["low"] <= FARTHER:
        return
    far = f"{_percent(farther)} of the keys are farther from the query"
    blocks = ", ".join(f"{one['tokens']} in layer {one['layer']}" for one in row["reach"][1:])
    fields = f"the receptive field is {whole['tokens']} tokens"
    fields += f" ({blocks})" if blocks else ""
    if whole["possible"] > whole["tokens"]:
        weak = f"tokens up to {whole['possible']} back change the output, by less than 1 %"
        yield "Let it read farther back: slower decay, a larger state.", f"{fields}; {far}; {weak}."
        return
    yield "Widen the window, or add layers.", f"{fields}, and nothing beyond it matters; {far}."


def _memorises(row: Row) -> Iterator[tuple[str, str]]:
    train, test = row["train"], row["test"]
    if train["low"] - test["high"] > MEMORISES:
        text = f"train {_percent(train)}, test {_percent(test)}: it memorises"
        documents = row["trained_on"]
        yield "Train on more documents.", f"{text}; there were {documents:,} to train on."


def _falling(row: Row) -> Iterator[tuple[str, str]]:
    curve = row["curve"]
    if improving(row):
        per = (
            f"{-100 * curve['value']:.2g} % [{-100 * curve['high']:.2g}, {-100 * curve['low']:.2g}]"
        )
        since = f"over {curve['n']} evaluations from step {curve['first_step']:,}"
        yield "Train longer.", f"the dev loss was still falling {per} in 100 steps, {since}."


def _rate(line: Line | None) -> Iterator[tuple[str, str]]:
    if line is None or line.rate is None:
        return
    tried = sorted({rate["rate"] for rate in line.rates})
    beyond = wider_rate(tried, line.rate)
    if beyond is not None:
        end = "largest" if beyond > line.rate else "smallest"
        ends = f"of {len(tried)}, from {tried[0]:g} to {tried[-1]:g}"
        yield (
            f"Try the rate {beyond:g}.",
            f"the best rate, {line.rate:g}, is the {end} tried ({ends}).",
        )


def _capacity(row: Row) -> Iterator[tuple[str, str]]:
    trained = row.get("trained_pairs")
    # more pairs than in training fail for many reasons: positions, for one, were never seen
    rows = [one for one in row["by_pairs"] if trained is None or one["pairs"] <= trained]
    if len(rows) < 2:
        return
    few, many = rows[0], rows[-1]
    drop = _above_chance(few, "value") - _above_chance(many, "value")
    below = _above_chance(few, "value") - _above_chance(few, "low")
    above = _above_chance(many, "high") - _above_chance(many, "value")
    if drop - hypot(below, above) > DROPS:  # the lower end of the difference's interval
        counts = [f"{_percent(one)} with {one['pairs']} pairs" for one in rows]
        yield "Give it a larger state, or more heads.", f"right answers: {', '.join(counts)}."


def _gradient(row: Row) -> Iterator[tuple[str, str]]:
    norm = row["gradient_norm"]
    if norm and norm["high"] < VANISHED and row["train"]["high"] < LEARNED:
        text = f"its norm is {norm['value']:.1g} [{norm['low']:.1g}, {norm['high']:.1g}]"
        yield "Check the scale of the initial weights.", f"the gradient has vanished: {text}."


def _key_unused(row: Row) -> Iterator[tuple[str, str]]:
    chance, test, inside = row["chance"], row["test"], row["from_document"]
    if chance is None or test["low"] > chance + AT_CHANCE or inside["low"] < INSIDE:
        return
    text = f"{_percent(inside)} of its answers are tokens of the document, {_percent(test)} right"
    plateau = f"without recall: {row['without_recall']}"
    yield (
        "Help it to join key and value, for instance by a short convolution; or train longer.",
        (f"{text}; {plateau}."),
    )


def _above_chance(row: Row, end: str) -> float:
    return float((row[end] - row["chance"]) / (1 - row["chance"]))


def _percent(row: Row) -> str:
    return f"{row['value']:.0%} [{row['low']:.0%}, {row['high']:.0%}; n={row['n']:,}]"
