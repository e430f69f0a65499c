"""Measure the CPU time from a mixer's file to its first card, against one training run of it."""

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.measure import Times, time_call
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
    "CPU time, all processes together, of `mecheval card examples/mixer.py:Decay` until its first "
    "answer (AR, one seed, a short search among three rates, interventions, diagnosis and page), "
    "as a multiple of one training run of the same mixer in a worker, on AR at scale quick with "
    "one seed and one rate. Both train in processes of their own."
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
        alone.append(_time_run(subject, size))
        first.append(_time_card(subject, size))
    ratios = [card_cpu / run_cpu for (card_cpu, _), (run_cpu, _) in zip(first, alone, strict=True)]
    ours, theirs = (Times(*zip(*calls, strict=True)).spreads() for calls in (first, alone))
    seconds = {kind: spread.median / 1e3 for kind, spread in ours.items()}
    yield Line(
        "first card",
        "one training run",
        ours["cpu_ms"].median / theirs["cpu_ms"].median,
        least=min(ratios),
        most=max(ratios),
        ours=ours,
        theirs=theirs,
        note=f"{size.card_steps:,} steps; {seconds['cpu_ms']:.0f} CPU seconds to the first card, "
        f"{seconds['wall_ms']:.0f} by the clock",
    )


def _scale(size: Size) -> Scale:
    quick = get_scale("quick")
    fields = {**quick.recall.fields, "train.steps": size.card_steps}
    return replace(quick, recall=replace(quick.recall, fields=fields))


def _time_card(subject: str, size: Size) -> tuple[float, float]:
    def stop(result: Card, seconds: float) -> None:
        raise FirstAnswer

    def make() -> None:
        with suppress(FirstAnswer):
            card(subject, _scale(size), folder, on_stage=stop)

    with tempfile.TemporaryDirectory() as folder:
        return time_call(make)


def _time_run(subject: str, size: Size) -> tuple[float, float]:
    name = register_from_text(mixers, subject)
    one = experiments(_scale(size), [name])[0]
    options = SweepOptions(workers=1, plugins=(subject,))
    with tempfile.TemporaryDirectory() as folder:
        return time_call(lambda: sweep([one], Path(folder) / "runs", options))
