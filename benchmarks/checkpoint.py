"""Measure what saving costs: one checkpoint as a share of the time between two."""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.measure import Times, time_rounds
from benchmarks.ratio import Job, Line
from benchmarks.size import Size
from benchmarks.steps import Setup
from mecheval.runs.checkpoint import Checkpoint, save_checkpoint
from mecheval.runs.experiment import Settings
from mecheval.runs.fit import prepared
from mecheval.training.train import Training, train

INTERVAL = Settings().save_every
CAPTION = (
    "The wall time of saving weights and optimiser, synced to the disk, as a share of the "
    f"{INTERVAL:g} seconds between two checkpoints."
)


def jobs(size: Size) -> Iterator[Job]:
    for architecture in size.architectures:
        yield Job(architecture, partial(lines, architecture, size), weight=0.3 * size.rounds)


def lines(architecture: str, size: Size) -> Iterator[Line]:
    times = time_saving(Setup(architecture, size.width, size), size.rounds)
    shares = [100 * ms / 1e3 / INTERVAL for ms in times.wall]
    spreads = times.spreads()
    share = 100 * spreads["wall_ms"].median / 1e3 / INTERVAL
    what = f"{architecture} d={size.width}"
    yield Line(what, "training", share, "%", min(shares), max(shares), spreads)


def time_saving(setup: Setup, rounds: int) -> Times:
    """Train one step first, so that the optimiser has a state to save."""
    batches = setup.batches
    training = Training.start(setup.model(), batches.config)
    with prepared(Settings()), tempfile.TemporaryDirectory() as folder:
        next(train(training, batches.config, batches, lambda model: {"loss": 0.0}, every=10**9))

        def save() -> None:
            training.step += 1
            save_checkpoint(Path(folder), Checkpoint(training.tensors(), training.numbers()))

        return time_rounds({"save": save}, rounds)["save"]
