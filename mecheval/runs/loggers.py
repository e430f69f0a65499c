"""Loggers that a run reports to: Weights & Biases, TensorBoard and third-party ones.

A logger has three methods: start(experiment, step), log(step, loss, row) and finish(status). One
that fails is left out and cannot make the run fail.
"""

import logging
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from mecheval.core.errors import InvalidInput
from mecheval.core.registry import Registry
from mecheval.runs.experiment import Experiment
from mecheval.training.config import Row

if TYPE_CHECKING:
    from mecheval.runs.session import Watcher

notes = logging.getLogger("mecheval")
loggers = Registry("logger")


def register_logger(name: str) -> Callable[[type[Any]], type[Any]]:
    """Return a decorator that registers a logger class for `mecheval run --log NAME`.

    Parameters
    ----------
    name
        The name behind `--log`.

    Returns
    -------
    decorator
        It takes a class with `start(experiment, step)`, `log(step, loss, row)` and
        `finish(status)`.

    Examples
    --------
    >>> from mecheval import register_logger
    >>> @register_logger("silent")
    ... class Silent:
    ...     def start(self, experiment, step): ...
    ...     def log(self, step, loss, row): ...
    ...     def finish(self, status): ...
    """
    return loggers.register(name)


def logger(name: str) -> "Watcher":
    """Build a logger by its name; refuse one whose package is not installed."""
    try:
        cls = loggers.get(name)
    except InvalidInput as error:
        raise error.within(f"log={name}") from error
    package = getattr(cls, "package", None)
    if package and find_spec(package) is None:
        hint = f"pip install 'mecheval[{package}]'"
        raise InvalidInput(f"log={name} needs the package {package}: {hint}")
    return Guarded(name, cls())


class Guarded:
    """A logger that is left out, with one warning, once it fails."""

    def __init__(self, name: str, inner: "Watcher") -> None:
        self._name, self._inner = name, inner
        self._failed = False

    def start(self, experiment: Experiment, step: int) -> None:
        self._call(self._inner.start, experiment, step)

    def log(self, step: int, loss: float, row: Row | None) -> None:
        self._call(self._inner.log, step, loss, row)

    def finish(self, status: str) -> None:
        self._call(self._inner.finish, status)

    def _call(self, method: Callable[..., None], *arguments: Any) -> None:
        if self._failed:
            return
        try:
            method(*arguments)
        except Exception as error:  # a run is worth more than its log
            self._failed = True
            reason = f"{type(error).__name__}: {error}"
            notes.warning("the logger %s failed and is left out: %s", self._name, reason)


@register_logger("wandb")
class WandB:
    """Logs to Weights & Biases, one run for each experiment; a resumed run continues it."""

    package = "wandb"

    def start(self, experiment: Experiment, step: int) -> None:
        import wandb

        names = {"project": "mecheval", "id": experiment.key[:32], "name": experiment.name}
        self._run: Any = wandb.init(**names, config=experiment.fields(), resume="allow")

    def log(self, step: int, loss: float, row: Row | None) -> None:
        if row:
            self._run.log(dict(row), step=step)

    def finish(self, status: str) -> None:
        self._run.summary["status"] = status
        self._run.finish()


@register_logger("tensorboard")
class TensorBoard:
    """Writes event files to ./tensorboard/NAME; a resumed run purges those after its checkpoint."""

    package = "tensorboard"

    def start(self, experiment: Experiment, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = f"tensorboard/{experiment.name}"
        self._writer: Any = SummaryWriter(folder, purge_step=step + 1)
        self._writer.add_text("experiment", experiment.to_json())

    def log(self, step: int, loss: float, row: Row | None) -> None:
        for name, value in (row or {}).items():
            if name != "step":
                self._writer.add_scalar(name, value, step)

    def finish(self, status: str) -> None:
        self._writer.add_text("status", status)
        self._writer.close()
