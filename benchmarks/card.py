"""Measure the time from a mixer's file to its first card, against one training run of it."""

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.measure import Spread, time_call
from benchmarks.ratio import Job, Line
from benchmarks.size import Size
from mecheval.cards.card import Card, card
from mecheval.cards.experiments import experiments
from mecheval.models.registries import mixers
from mecheval.plugins import register_from_text
from mecheval.sweeps.options import SweepOptions
from mecheval.sweeps.recipe import Scale, get_scale
from mecheval.sweeps.sweep import sweep

CAPTION = (
    "Wall time of `mecheval card examples/mixer.py:Decay` until its first answer (AR, one seed, a "
    "short search among three rates, interventions, diagnosis and page), as a multiple of one "
    "training run of the same mixer in a worker, on AR at scale quick with one seed and one rate. "
    "Both train in processes of their own."
)
MIXER = Path(__file__).parents[1] / "examples" / "mixer.py"
SECONDS_PER_STEP = 0.1  # about, for the progress bar


class FirstAnswer(Exception):
    """Ends a card after its first stage."""


def jobs(size: Size) -> Iterator[Job]:
    yield Job("first card", partial(lines, size), weight=SECONDS_PER_STEP * size.card_steps)


def lines(size: Size) -> Iterator[Line]:
    subject = f"{MIXER}:Decay"
    first, alone = [], []
    for _ in range(min(size.rounds, 2)):
        alone.append(_run_ms(subject, size))
        first.append(_card_ms(subject, size))
    ratios = [a / b for a, b in zip(first, alone, strict=True)]
    ours, theirs = Spread.of(first), Spread.of(alone)
    yield Line(
        "first card",
        "one training run",
        ours.median / theirs.median,
        least=min(ratios),
        most=max(ratios),
        ours={"wall_ms": ours},
        theirs={"wall_ms": theirs},
        note=f"{size.card_steps:,} steps; {ours.median / 1e3:.0f} seconds to the first card",
    )


def _scale(size: Size) -> Scale:
    quick = get_scale("quick")
    fields = {**quick.recall.fields, "train.steps": size.card_steps}
    return replace(quick, recall=replace(quick.recall, fields=fields))


def _card_ms(subject: str, size: Size) -> float:
    def stop(result: Card, seconds: float) -> None:
        raise FirstAnswer

    def make() -> None:
        with suppress(FirstAnswer):
            card(subject, _scale(size), folder, on_stage=stop)

    with tempfile.TemporaryDirectory() as folder:
        return time_call(make)[1]


def _run_ms(subject: str, size: Size) -> float:
    name = register_from_text(mixers, subject)
    one = experiments(_scale(size), [name])[0]
    options = SweepOptions(workers=1, plugins=(subject,))
    with tempfile.TemporaryDirectory() as folder:
        return time_call(lambda: sweep([one], Path(folder) / "runs", options))[1]
