"""Training in memory, and the torch state that every training needs."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mecheval.core.errors import InvalidInput
from mecheval.metrics.behaviour import behaviour
from mecheval.models.build import Model
from mecheval.runs.experiment import Settings
from mecheval.tasks.task import Task
from mecheval.training.batches import Batches
from mecheval.training.config import Row, TrainConfig
from mecheval.training.train import Training, train

FIT_DOCUMENTS = 256  # of dev, for each line of the curve
LARGEST = 33_000_000  # bytes; glibc adapts to no larger block


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
    """Train a model in place on fresh documents and return the curve; nothing is written.

    The curve has a line for each `every` steps; training ends at an accuracy of `stop` on dev.

    Parameters
    ----------
    model
        The model; its weights are changed.
    task
        Draws the documents.
    steps
        Number of steps.
    lr
        Highest learning rate.
    batch
        Documents of a step.
    seed
        Seed of the documents.
    every
        Steps between lines of the curve.
    stop
        Accuracy on dev at which training ends early.

    Returns
    -------
    list of dict
        The curve: step, losses, accuracy on dev, learning rate and gradient norm.

    Examples
    --------
    >>> from mecheval import LanguageModel, ModelConfig, Recall, fit
    >>> task = Recall(pairs=2, vocab=8)
    >>> model = LanguageModel(ModelConfig("attention", d_model=8), task.vocab_size)
    >>> [row["step"] for row in fit(model, task, steps=20, every=10)]
    [10, 20]
    """
    config = TrainConfig(documents=0, steps=steps, lr=lr, batch=batch, stop=stop)
    training, dev = Training.start(model, config), task.documents(seed, "dev", 0, FIT_DOCUMENTS)
    batches = Batches(task, seed, config)
    with prepared(Settings()):
        for _ in train(training, config, batches, lambda m: behaviour(m, dev).means(), every):
            pass
    return training.curve


def check_device(device: str) -> None:
    """Refuse a device that this machine has not."""
    if device != "cpu" and not getattr(torch, device).is_available():
        raise InvalidInput(f"device {device!r} is not available; use --device cpu")


@contextmanager
def prepared(settings: Settings) -> Iterator[None]:
    """Set the threads and flush denormal numbers, which decaying states make and which are slow.

    Both are restored at the end. Freeing one large block makes glibc keep the memory that a step
    frees for the next step, which would otherwise fetch it page by page.
    """
    check_device(settings.device)
    threads = torch.get_num_threads()
    flushed = bool(torch.tensor(1e-310, dtype=torch.float64) * 1 == 0)
    torch.set_num_threads(settings.threads)
    torch.set_flush_denormal(True)
    torch.empty(LARGEST, dtype=torch.uint8)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(flushed)
