"""Carries an experiment out: trains, measures, keeps. The same experiment gives the same bytes, killed or not.

A model that is there already is trained by `fit`, without an experiment.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from mecheval.core.errors import CheckFailed, InvalidInput, MechevalError, RunFailed
from mecheval.runs.experiment import Experiment, Settings
from mecheval.metrics.behaviour import behaviour
from mecheval.models.build import Model
from mecheval.models.check import check_architecture
from mecheval.models.check_model import check_whole
from mecheval.runs.provenance import made_by
from mecheval.runs.finished import Run
from mecheval.runs.pending import Workplace, refuse_differences
from mecheval.runs.session import Session, Watcher
from mecheval.tasks.task import Task
from mecheval.training.batches import Batches
from mecheval.training.config import Row, TrainConfig
from mecheval.training.train import Training, train

LOOKED_AT = 256  # documents of dev, at each line of a curve
LARGEST = 33_000_000  # bytes; glibc learns from no larger block


def run(
    experiment: Experiment,
    out: str | Path,
    settings: Settings = Settings(),  # noqa: B008, it is frozen
    watchers: Sequence[Watcher] = (),
) -> Run:
    """The finished run in a folder of `out`: made now, gone on with after a kill, or as it was found."""
    made = made_by(settings.device, settings.threads, settings.plugins)
    place = Workplace(Path(out) / experiment.name)
    if found := place.finished:
        return _as_found(found, experiment, made)
    with prepared(settings):
        _check_strangers(experiment)
        return _in_place(experiment, place, made, settings, watchers)


def fit(
    model: Model,
    task: Task,
    *,
    steps: int,
    lr: float = 1e-3,
    batch: int = 32,
    seed: int = 0,
    every: int = 100,
    stop: float | None = None,
) -> list[Row]:
    """Trains a model where it is, on fresh documents, and keeps nothing: no experiment, no folder. Returns the curve, a
    line for each `every` steps; an accuracy of `stop` on dev ends it."""
    config = TrainConfig(documents=0, steps=steps, lr=lr, batch=batch, stop=stop)
    training, dev = Training.start(model, config), task.documents(seed, "dev", 0, LOOKED_AT)
    with prepared(Settings()):
        for _ in train(training, config, Batches(task, seed, config), lambda m: behaviour(m, dev).means(), every):
            pass
    return training.curve


def _in_place(
    experiment: Experiment,
    place: Workplace,
    made: Mapping[str, Any],
    settings: Settings,
    watchers: Sequence[Watcher],
) -> Run:
    with place.claimed():
        if found := place.finished or place.recovered():
            return _as_found(found, experiment, made)
        place.begin({"key": experiment.key, **experiment.fields()}, made)
        session = Session.open(experiment, place, settings.device, watchers)
        try:
            return session.carry_out(settings.save_every, made)
        except MechevalError:
            raise
        except Exception as error:
            reason = f"step {session.training.step}: {type(error).__name__}: {error}"
            place.note({"reason": reason})
            raise RunFailed(f"{place.folder}: {reason}") from error


@contextmanager
def prepared(settings: Settings) -> Iterator[None]:
    """The process as a run wants it: so many threads, and no denormal numbers, which decaying states make and which are
    many times slower. Left as it was found, but for what glibc learns: having freed a large block, it keeps what a step
    frees for the next one, which would otherwise fetch it page by page."""
    if settings.device != "cpu" and not getattr(torch, settings.device).is_available():
        raise InvalidInput(f"device={settings.device} must be there; torch sees none, cpu always is")
    threads, flushed = torch.get_num_threads(), bool(torch.tensor(1e-310, dtype=torch.float64) * 1 == 0)
    torch.set_num_threads(settings.threads)
    torch.set_flush_denormal(True)
    torch.empty(LARGEST, dtype=torch.uint8)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(flushed)


def _as_found(found: Run, experiment: Experiment, made: Mapping[str, Any]) -> Run:
    refuse_differences(found.folder, found.experiment, {"key": experiment.key, **experiment.fields()})
    refuse_differences(found.folder, found.provenance["made_by"], made)
    found.verify()
    return found


def _check_strangers(experiment: Experiment) -> None:
    """A mixer or a model that sees the future would make every number false."""
    check_architecture(experiment.model.architecture, experiment.model.d_model)
    try:
        check_whole(experiment.model)
    except CheckFailed as error:
        raise InvalidInput(str(error).splitlines()) from error
