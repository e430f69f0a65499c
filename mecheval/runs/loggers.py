"""Loggers of other people, as extras: each is told how a run goes by three methods, and none can make it fail.

start(experiment, step)     log(step, loss, row)     finish(status)
"""

import logging
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from mecheval.core.errors import InvalidInput
from mecheval.core.options import did_you_mean
from mecheval.runs.experiment import Experiment
from mecheval.training.config import Row

if TYPE_CHECKING:
    from mecheval.runs.run import Watcher

notes = logging.getLogger("mecheval")


def logger(name: str) -> "Watcher":
    """A logger by its name; refused if there is none or its package is not installed."""
    if name not in LOGGERS:
        raise InvalidInput(f"log={name} must be one that there is{did_you_mean(name, LOGGERS)}")
    if find_spec(name) is None:
        raise InvalidInput(f"log={name} needs the package {name}: pip install 'mecheval[{name}]'")
    return Guarded(name, LOGGERS[name]())


class Guarded:
    """Another logger, until it fails: then it is said once, and the run goes on without it."""

    def __init__(self, name: str, inner: "Watcher") -> None:
        self._name, self._inner = name, inner
        self._failed = False

    def start(self, experiment: Experiment, step: int) -> None:
        self._tell(self._inner.start, experiment, step)

    def log(self, step: int, loss: float, row: Row | None) -> None:
        self._tell(self._inner.log, step, loss, row)

    def finish(self, status: str) -> None:
        self._tell(self._inner.finish, status)

    def _tell(self, method: Callable[..., None], *arguments: Any) -> None:
        if self._failed:
            return
        try:
            method(*arguments)
        except Exception as error:  # whatever it is, a run is worth more than its log
            self._failed = True
            notes.warning("the logger %s failed and is left out: %s: %s", self._name, type(error).__name__, error)


class WandB:
    """Weights & Biases. One run of theirs for each experiment, gone on with after a kill."""

    def start(self, experiment: Experiment, step: int) -> None:
        import wandb

        self._run: Any = wandb.init(
            project="mecheval", id=experiment.key[:32], name=experiment.name, config=experiment.fields(), resume="allow"
        )

    def log(self, step: int, loss: float, row: Row | None) -> None:
        if row:
            self._run.log(dict(row), step=step)

    def finish(self, status: str) -> None:
        self._run.summary["status"] = status
        self._run.finish()


class TensorBoard:
    """Event files in ./tensorboard/NAME; what was logged after the last checkpoint is taken back."""

    def start(self, experiment: Experiment, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(f"tensorboard/{experiment.name}", purge_step=step + 1)
        self._writer.add_text("experiment", experiment.to_json())

    def log(self, step: int, loss: float, row: Row | None) -> None:
        for name, value in (row or {}).items():
            if name != "step":
                self._writer.add_scalar(name, value, step)

    def finish(self, status: str) -> None:
        self._writer.add_text("status", status)
        self._writer.close()


LOGGERS: dict[str, Callable[[], "Watcher"]] = {"wandb": WandB, "tensorboard": TensorBoard}
