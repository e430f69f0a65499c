"""One process's work at a run: it trains, looks, measures and saves, from wherever an earlier one was stopped."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool
from numpy import ndarray
from torch import Tensor

from mecheval.core.errors import Interrupted, StoreError
from mecheval.runs.experiment import Experiment
from mecheval.metrics.behaviour import behaviour
from mecheval.interventions.grid import GridOptions
from mecheval.interventions.grid_eval import evaluate_grid, missing_sites
from mecheval.metrics.measurement import Measurement
from mecheval.interventions.verdict import Verdict
from mecheval.models.build import build_model
from mecheval.runs.checkpoint import Checkpoint
from mecheval.runs.provenance import Clock, provenance, timestamp
from mecheval.runs.finished import Run
from mecheval.runs.tensors import packed
from mecheval.runs.pending import Workplace
from mecheval.runs.signals import on_stop
from mecheval.tasks.documents import Documents
from mecheval.tasks.splits import Split
from mecheval.tasks.dataset_stats import texts
from mecheval.training.batches import Batches
from mecheval.training.config import Row
from mecheval.training.train import Diverged, Training, train

logger = logging.getLogger("mecheval")
SPLITS: dict[str, tuple[Split, ...]] = {"test": ("test",), "dev": ("dev",), "both": ("dev", "test")}
JUDGEMENTS = ("accuracy", "likelihood")  # what nobody may read off a model that is broken


@runtime_checkable
class Watcher(Protocol):
    """Somebody who is told how a run goes: a progress bar, a logger."""

    def start(self, experiment: Experiment, step: int) -> None: ...

    def log(self, step: int, loss: float, row: Row | None) -> None:
        """After every step; `row` is the new line of the curve, if there is one."""
        ...

    def finish(self, status: str) -> None: ...


@dataclass
class Session:
    """One process's work at a run."""

    experiment: Experiment
    place: Workplace
    training: Training
    batches: Batches
    clock: Clock
    started: str
    watchers: Sequence[Watcher]
    emergence: list[dict[str, Any]]  # rows of the grids made during training

    @classmethod
    def open(cls, experiment: Experiment, place: Workplace, device: str, watchers: Sequence[Watcher]) -> "Session":
        """At the newest whole checkpoint, or at the beginning; says which checkpoints are broken."""
        task = experiment.task
        model = build_model(experiment.model, task.vocab_size, experiment.seed).to(device)
        if experiment.eval.grid != "none" and (reason := missing_sites(model)):
            logger.warning("%s: %s", experiment.model.architecture, reason)
        training = Training.start(model, experiment.train)
        checkpoint, problems = place.load()
        for problem in problems:
            logger.warning("%s: %s; an earlier one is used", place.folder, problem)
        clock, started, emergence = Clock(), timestamp(), []
        if checkpoint:
            try:
                _must_fit(checkpoint.tensors, training)
                training.restore({n: t.to(device) for n, t in checkpoint.tensors.items()}, checkpoint.numbers)
                clock, started = Clock.going_on(checkpoint.numbers["clock"]), checkpoint.numbers["started"]
                emergence = list(checkpoint.numbers["emergence"])
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                reason = f"its checkpoint is of another experiment: {error}"
                raise StoreError(f"{place.folder} is damaged: {reason}; remove it to start again") from error
        batches = Batches(task, experiment.seed, experiment.train)
        return cls(experiment, place, training, batches, clock, started, watchers, emergence)

    def carry_out(self, save_every: float, made: Mapping[str, Any]) -> Run:
        for watcher in self.watchers:
            watcher.start(self.experiment, self.training.step)
        ended = "not finished"
        try:
            found = self._finished(save_every, made)
            ended = found.status
        finally:
            for watcher in self.watchers:
                watcher.finish(ended)
        return found

    def _finished(self, save_every: float, made: Mapping[str, Any]) -> Run:
        status: dict[str, Any] = {"status": "done", "key": self.experiment.key}
        rows: list[dict[str, Any]] = []
        records: dict[str, Mapping[str, Any]] = {}
        files: dict[str, bytes] = {}
        try:
            self._train(save_every)
            rows = [row.to_dict() for row in self._measured()]
            found, verdict = self._judged()
            rows += self._earlier() + [row.to_dict() for row in found]
            records |= {"verdict": verdict.to_dict()} if verdict else {}
            files["weights.safetensors"] = packed(self.training.model.state_dict())
            files["optimiser.safetensors"] = packed(self.training.optimiser_tensors())
        except Diverged as error:
            status |= {"status": "diverged", "reason": str(error)}
            self.training.curve[:] = [_without(row, JUDGEMENTS) for row in self.training.curve]
        status["steps"] = self.training.step
        return self.place.finish(
            {**records, "status": status, "provenance": provenance(made, self.clock, self.started)},
            {"curve": self.training.curve, "rows": rows},
            files,
        )

    def _train(self, save_every: float) -> None:
        """To the end or until somebody wants it to stop; saves on the way and at the end."""
        experiment, training = self.experiment, self.training
        dev, saved = self._documents("dev"), time.monotonic()
        steps = train(
            training, experiment.train, self.batches, lambda m: behaviour(m, dev).means(), experiment.eval.every
        )
        received: list[int] = []
        with on_stop(received.append):
            for row in steps:
                self._look(row)
                for watcher in self.watchers:
                    watcher.log(training.step, training.loss, row)
                if received or time.monotonic() - saved >= save_every:
                    self._save()
                    saved = time.monotonic()
                if received:
                    where = f"step {training.step} of {experiment.train.total}"
                    raise Interrupted(f"stopped at {where}; {self.place.folder} is saved, the same command goes on")
            self._save()

    def _save(self) -> None:
        numbers = {**self.training.numbers(), "clock": self.clock.read(), "started": self.started}
        numbers["emergence"] = self.emergence
        self.place.save(Checkpoint(self.training.tensors(), numbers))

    def _measured(self) -> list[Measurement]:
        """On dev, on test, and on what of test never occurred in training."""
        training, rows = self.training, []
        for split in ("dev", "test"):
            docs = self._documents(split)
            found = behaviour(training.model, docs)
            if not math.isfinite(found.loss.sum()):
                raise Diverged(training.step, f"{split}_loss is {found.loss.mean()}")
            rows += found.rows(split, training.step)
            if split == "test":
                rows += found.rows("test_unseen", training.step, self._unseen(docs))
        return rows

    def _judged(self) -> tuple[list[Measurement], Verdict | None]:
        """What is restored where, and the verdict: that on test, where test is asked for."""
        asked, rows, verdict = self.experiment.eval, list[Measurement](), None
        for split in () if asked.grid == "none" else SPLITS[asked.grid_split]:
            found, verdict = self._grid(split)
            rows += found
        return rows, verdict

    def _look(self, row: Row | None) -> None:
        """The grid at every so many-th evaluation."""
        training, asked = self.training, self.experiment.eval
        if row and asked.grid_every and asked.grid != "none" and len(training.curve) % asked.grid_every == 0:
            self.emergence += [found.to_dict() for found in self._grid("dev")[0]]

    def _earlier(self) -> list[dict[str, Any]]:
        """The grids made on the way, but for one that the last one on dev repeats."""
        again = "dev" in SPLITS[self.experiment.eval.grid_split]
        return [row for row in self.emergence if not again or row["step"] < self.training.step]

    def _grid(self, split: Split) -> tuple[list[Measurement], Verdict | None]:
        training, asked = self.training, self.experiment.eval
        task, seed = self.experiment.task, self.experiment.seed
        options = GridOptions(site=asked.grid, documents=asked.grid_documents)
        result = evaluate_grid(training.model, task, options, seed=seed, split=split)
        return result.rows(training.step), result.verdict

    def _unseen(self, docs: Documents) -> Bool[ndarray, " n"]:
        names = texts(docs)
        wanted, seen = set(names), set()
        for block in self.batches.blocks(self.training.step):
            seen |= wanted.intersection(texts(block))
        return np.array([name not in seen for name in names])

    def _documents(self, split: Split) -> Documents:
        return self.experiment.task.documents(self.experiment.seed, split, 0, self.experiment.eval.documents)


def _must_fit(tensors: Mapping[str, Tensor], training: Training) -> None:
    """The fused optimiser does not look at shapes: a tensor that is too small would be read beyond its end."""
    wanted = {f"model.{name}": tensor for name, tensor in training.model.state_dict().items()}
    for name, parameter in training.model.named_parameters():
        wanted |= {f"optimiser.{key}.{name}": parameter for key in ("exp_avg", "exp_avg_sq")}
        wanted[f"optimiser.step.{name}"] = torch.zeros(())
    for name, tensor in tensors.items():
        if name not in wanted or (tensor.shape, tensor.dtype) != (wanted[name].shape, wanted[name].dtype):
            raise ValueError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}")


def _without(row: Row, names: Sequence[str]) -> Row:
    return {name: value for name, value in row.items() if name not in names}
