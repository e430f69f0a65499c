"""Which documents a step sees: a pure function of (task, seed, config, step). Data has no state to lose."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy import ndarray
from torch import Tensor

from mecheval.tasks.batch import Documents
from mecheval.tasks.philox import key_of, permutation
from mecheval.tasks.task import Task
from mecheval.training.config import TrainConfig

BLOCK = 2**16  # documents


@dataclass(frozen=True)
class Batch:
    """Documents as a model reads them."""

    tokens: Int[Tensor, "batch time"]
    at: Int[Tensor, "batch reads"]
    answers: Int[Tensor, "batch reads"]

    @classmethod
    def of(cls, docs: Documents, device: torch.device | str = "cpu") -> "Batch":
        arrays = (docs.tokens, docs.queries, docs.answers)
        return cls(*(torch.from_numpy(array).long().to(device) for array in arrays))


@dataclass(frozen=True)
class Batches:
    """Every epoch in an order of its own; fresh documents for every step where `config.documents` is 0."""

    task: Task
    seed: int
    config: TrainConfig

    def __getitem__(self, step: int) -> Documents:
        size = self.config.batch
        if not self.config.documents:
            return self.task.documents(self.seed, "train", step * size, (step + 1) * size)
        epoch, place = divmod(step, self.config.documents // size)
        return self._documents[order(self.seed, epoch, self.config.documents)[place * size : (place + 1) * size]]

    def blocks(self, steps: int) -> Iterator[Documents]:
        """All that so many steps see."""
        if self.config.documents:
            yield self._documents[self._shown(steps)]
            return
        total = steps * self.config.batch
        for start in range(0, total, BLOCK):
            yield self.task.documents(self.seed, "train", start, min(start + BLOCK, total))

    def _shown(self, steps: int) -> Bool[ndarray, " documents"]:
        """Which documents are in a batch of any epoch: not all where steps are few or a batch is not filled."""
        size, shown = self.config.batch, np.zeros(self.config.documents, bool)
        per_epoch = self.config.documents // size
        for epoch in range(-(-steps // per_epoch)):
            places = min(per_epoch, steps - epoch * per_epoch) * size
            shown[order(self.seed, epoch, self.config.documents)[:places]] = True
            if shown.all():
                break
        return shown

    @cached_property
    def _documents(self) -> Documents:
        return self.task.documents(self.seed, "train", 0, self.config.documents)


@lru_cache(maxsize=2)
def order(seed: int, epoch: int, documents: int) -> Int[ndarray, " documents"]:
    """The order of an epoch."""
    found = permutation(key_of("order", seed, epoch), documents)
    return np.asarray(found)
