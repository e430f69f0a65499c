"""The work of one process on a run: train, evaluate, save, measure, finish."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool
from numpy import ndarray
from torch import Tensor

from mecheval.core.errors import Interrupted, Paused, StoreError
from mecheval.interventions.grid import GridOptions
from mecheval.interventions.grid_eval import evaluate_grid, missing_sites
from mecheval.interventions.verdict import Verdict
from mecheval.metrics.behaviour import behaviour
from mecheval.metrics.measurement import Measurement
from mecheval.models.build import Model, build_model
from mecheval.plugins import defined_classes, plugin_files
from mecheval.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from mecheval.runs.experiment import Experiment, Settings
from mecheval.runs.files import pack_tensors
from mecheval.runs.finished import Run
from mecheval.runs.pending import PendingRun
from mecheval.runs.provenance import Clock, provenance, timestamp
from mecheval.runs.signals import on_stop
from mecheval.tasks.dataset_stats import texts
from mecheval.tasks.documents import Documents
from mecheval.tasks.splits import Split
from mecheval.training.batches import Batches
from mecheval.training.config import Row
from mecheval.training.train import Diverged, Training, solved, train

logger = logging.getLogger("mecheval")
SPLITS: dict[str, tuple[Split, ...]] = {"test": ("test",), "dev": ("dev",), "both": ("dev", "test")}
SCORES = ("accuracy", "likelihood")  # left out of the curve of a diverged run


@runtime_checkable
class Watcher(Protocol):
    """Follows a run: a progress bar, a logger."""

    def start(self, experiment: Experiment, step: int) -> None: ...

    def log(self, step: int, loss: float, row: Row | None) -> None:
        """Receive every step; `row` is the new line of the curve, if there is one."""
        ...

    def finish(self, status: str) -> None: ...


class Session:
    """The work of one process on a run, from the newest whole checkpoint or from step 0."""

    def __init__(
        self,
        experiment: Experiment,
        pending: PendingRun,
        settings: Settings,
        watchers: Sequence[Watcher],
        until: int | None = None,
    ) -> None:
        self.experiment, self.pending = experiment, pending
        self.settings, self.watchers, self.until = settings, watchers, until
        self.clock, self.started = Clock(), timestamp()
        defined = defined_classes(experiment.model).items()
        self.classes = {name: place for name, (_, place) in defined}
        self.emergence: list[dict[str, Any]] = []  # rows of the grids made during training
        task, seed = experiment.task, experiment.seed
        model = build_model(experiment.model, task.vocab_size, seed).to(settings.device)
        config, third_party = experiment.eval, experiment.model.third_party
        if third_party and config.grid != "none" and (reason := missing_sites(model)):
            logger.warning("%s: %s", experiment.model.architecture, reason)
        options = GridOptions(site=config.grid, documents=config.grid_documents)
        self.evaluate_grid = partial(evaluate_grid, model, task, options, seed=seed)
        self.training = Training.start(model, experiment.train)
        self.batches = Batches(task, seed, experiment.train)
        checkpoint, problems = load_checkpoint(pending.checkpoints)
        for problem in problems:
            logger.warning("%s: %s; an earlier one is used", pending.folder, problem)
        if checkpoint:
            self._resume(checkpoint)

    def _resume(self, checkpoint: Checkpoint) -> None:
        numbers, device = checkpoint.numbers, self.settings.device
        try:
            _check_tensors(checkpoint.tensors, self.training)
            tensors = {name: tensor.to(device) for name, tensor in checkpoint.tensors.items()}
            self.training.restore(tensors, numbers)
            self.clock, self.started = Clock.resume(numbers["clock"]), numbers["started"]
            self.emergence = list(numbers["emergence"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = f"its checkpoint is of another experiment: {error}"
            message = f"{self.pending.folder} is damaged: {reason}; remove it to start again"
            raise StoreError(message) from error

    def complete(self, made: Mapping[str, Any]) -> Run:
        """Train to the end, measure and keep the run."""
        training, ended = self.training, "not finished"
        status: dict[str, Any] = {"status": "done", "key": self.experiment.key}
        records: dict[str, Mapping[str, Any]] = {"status": status}
        rows: list[dict[str, Any]] = []
        files: dict[str, bytes] = {}
        for watcher in self.watchers:
            watcher.start(self.experiment, training.step)
        try:
            try:
                self._train()
                rows, verdict = self._measure()
                if verdict:
                    records["verdict"] = verdict.to_dict()
                files["weights.safetensors"] = pack_tensors(training.model.state_dict())
                files["optimiser.safetensors"] = pack_tensors(training.optimiser_tensors())
            except Diverged as error:
                status |= {"status": "diverged", "reason": str(error)}
                training.curve = [_without_scores(row) for row in training.curve]
            status["steps"] = training.step
            places = (self.classes, plugin_files(self.experiment.task, self.experiment.model))
            records["provenance"] = provenance(made, self.clock, self.started, *places)
            tables = {"curve": training.curve, "rows": rows}
            finished = self.pending.finish(records, tables, files)
            ended = finished.status
            return finished
        finally:
            for watcher in self.watchers:
                watcher.finish(ended)

    def _train(self) -> None:
        """Train to the end, to a stop signal or to `until`; save on the way and at the end."""
        self._pause()
        training, config, dev = self.training, self.experiment.eval, self._documents("dev")
        every, batches = config.every, self.batches

        def evaluate(model: Model) -> Row:
            return behaviour(model, dev).means()

        saved, signals = time.monotonic(), list[int]()
        with on_stop(signals.append):
            for row in train(training, self.experiment.train, batches, evaluate, every):
                if row and config.grid_every and len(training.curve) % config.grid_every == 0:
                    cells = self.evaluate_grid(split="dev").rows(training.step)
                    self.emergence += [cell.to_dict() for cell in cells]
                for watcher in self.watchers:
                    watcher.log(training.step, training.loss, row)
                if signals or time.monotonic() - saved >= self.settings.save_every:
                    save_checkpoint(self.pending.checkpoints, self.checkpoint)
                    saved = time.monotonic()
                if signals:
                    stopped = f"stopped at step {training.step} of {self.experiment.train.total}"
                    rerun = "rerun the same command to resume"
                    said = f"{stopped}; {self.pending.folder} is saved, {rerun}"
                    raise Interrupted(said, signals[0])
                self._pause()
            save_checkpoint(self.pending.checkpoints, self.checkpoint)

    def _pause(self) -> None:
        """Save and raise Paused at the step `until`, unless training is over there."""
        training, config = self.training, self.experiment.train
        if self.until is None or not self.until <= training.step < config.total:
            return
        if not solved(training, config):
            save_checkpoint(self.pending.checkpoints, self.checkpoint)
            raise Paused(f"{self.pending.folder} is saved at step {training.step}")

    @property
    def checkpoint(self) -> Checkpoint:
        """Everything that a process needs to resume here."""
        numbers = {**self.training.numbers(), "clock": self.clock.read(), "started": self.started}
        return Checkpoint(self.training.tensors(), {**numbers, "emergence": self.emergence})

    def _measure(self) -> tuple[list[dict[str, Any]], Verdict | None]:
        """Measure dev, test and the unseen documents of test, then the grids and the verdict."""
        step, rows = self.training.step, list[Measurement]()
        for split in ("dev", "test"):
            docs = self._documents(split)
            scores = behaviour(self.training.model, docs)
            if not math.isfinite(scores.loss.sum()):
                raise Diverged(step, f"{split}_loss is {scores.loss.mean()}")
            rows += scores.rows(split, step)
        rows += scores.rows("test_unseen", step, self._unseen(docs))
        splits = SPLITS[self.experiment.eval.grid_split]
        # the last grid on dev may repeat one that was made during training
        earlier = [row for row in self.emergence if "dev" not in splits or row["step"] < step]
        records = [row.to_dict() for row in rows] + earlier
        for split in splits:
            grid = self.evaluate_grid(split=split)
            records += [cell.to_dict() for cell in grid.rows(step)]
        return records, grid.verdict

    def _unseen(self, docs: Documents) -> Bool[ndarray, " n"]:
        """Tell which documents did not occur in training."""
        names = texts(docs)
        remaining = set(names)
        for block in self.batches.blocks(self.training.step):
            remaining.difference_update(texts(block))
        return np.array([name in remaining for name in names])

    def _documents(self, split: Split) -> Documents:
        count = self.experiment.eval.documents
        return self.experiment.task.documents(self.experiment.seed, split, 0, count)


def _check_tensors(tensors: Mapping[str, Tensor], training: Training) -> None:
    """Check names, shapes and types: the fused optimiser would read beyond the end of a tensor."""
    known = {f"model.{name}": tensor for name, tensor in training.model.state_dict().items()}
    for name, parameter in training.model.named_parameters():
        known |= {f"optimiser.{key}.{name}": parameter for key in ("exp_avg", "exp_avg_sq")}
        known[f"optimiser.step.{name}"] = torch.zeros(())
    for name, tensor in tensors.items():
        shape = (tensor.shape, tensor.dtype)
        if name not in known or shape != (known[name].shape, known[name].dtype):
            raise ValueError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}")


def _without_scores(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in SCORES}
