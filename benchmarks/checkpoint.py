"""What saving costs: one checkpoint as a share of the time between two."""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.measure import Times, interleaved
from benchmarks.ratio import Job, Line
from benchmarks.size import Size
from benchmarks.steps import Arena
from mecheval.runs.checkpoint import Checkpoint, save_checkpoint
from mecheval.runs.experiment import Settings
from mecheval.runs.fit import prepared
from mecheval.training.train import Training, train

EVERY = Settings().save_every
CAPTION = (
    f"The wall time of saving weights and optimiser, synced to the disk, as a share of the {EVERY:g} seconds between "
    "two checkpoints."
)


def jobs(size: Size) -> Iterator[Job]:
    for architecture in size.architectures:
        yield Job(architecture, partial(lines, architecture, size), weight=0.3 * size.rounds)


def lines(architecture: str, size: Size) -> Iterator[Line]:
    saved = saving(Arena(architecture, size.width, size), size.rounds)
    shares = [100 * ms / 1e3 / EVERY for ms in saved.wall]
    spread = saved.spreads()
    middle = 100 * spread["wall_ms"].median / 1e3 / EVERY
    yield Line(
        f"{architecture} d={size.width}", "training", middle, "%", min(shares), max(shares), spread
    )


def saving(arena: Arena, rounds: int) -> Times:
    """Of a training that has made a step, so that the optimiser has something to save."""
    batches = arena.batches
    training = Training.start(arena.model(), batches.config)
    with prepared(Settings()), tempfile.TemporaryDirectory() as folder:
        next(train(training, batches.config, batches, lambda model: {"loss": 0.0}, every=10**9))

        def save() -> None:
            training.step += 1
            save_checkpoint(Path(folder), Checkpoint(training.tensors(), training.numbers()))

        return interleaved({"save": save}, rounds)["save"]
