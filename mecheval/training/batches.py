"""Which documents a step sees: a pure function of (task, seed, config, step). Data has no state to lose."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from mecheval.tasks.documents import Documents
from mecheval.tasks.philox import key_of, permutation
from mecheval.tasks.task import Task
from mecheval.training.config import TrainConfig

BLOCK = 2**16  # documents
AHEAD = 16  # buckets of fresh documents that are drawn at once


@dataclass(frozen=True)
class Batches:
    """Every epoch in an order of its own; fresh documents for every step where `config.documents` is 0.

    With a `config.bucket` of several batches their documents are sorted by length first: less padding is computed.
    """

    task: Task
    seed: int
    config: TrainConfig

    def __getitem__(self, step: int) -> Documents:
        epoch, place = divmod(step, self._per_epoch)
        first = place - place % self.config.bucket
        return self._bucket(epoch, first)[place - first]

    def blocks(self, steps: int) -> Iterator[Documents]:
        """All that so many steps see."""
        if self.config.documents:
            yield self._documents[self._shown(steps)]
            return
        whole = steps - steps % self.config.bucket
        for start in range(0, whole * self.config.batch, BLOCK):
            yield self.task.documents(self.seed, "train", start, min(start + BLOCK, whole * self.config.batch))
        for step in range(whole, steps):
            yield self[step]

    @cached_property
    def _bucket(self) -> Callable[[int, int], list[Documents]]:
        """The batches of the bucket that begins at a step of an epoch, remembered until another is asked for."""

        @lru_cache(maxsize=1)
        def batches(epoch: int, first: int) -> list[Documents]:
            count = min(self.config.bucket, self._per_epoch - first)
            pool = self._pool(epoch, first, first + count)
            return [pool] if count == 1 else [pool[rows] for rows in self._alike(pool, epoch, first, count)]

        return batches

    def _pool(self, epoch: int, start: int, stop: int) -> Documents:
        """The documents of some steps of an epoch."""
        rows = slice(start * self.config.batch, stop * self.config.batch)
        if not self.config.documents:
            ahead = self._ahead(rows.start // self._drawn)
            return ahead[rows.start % self._drawn : (rows.stop - 1) % self._drawn + 1]
        return self._documents[order(self.seed, epoch, self.config.documents)[rows]]

    @property
    def _drawn(self) -> int:
        """How many fresh documents are drawn at once."""
        return AHEAD * self.config.bucket * self.config.batch

    @cached_property
    def _ahead(self) -> Callable[[int], Documents]:
        """So many of them, remembered until others are asked for."""

        @lru_cache(maxsize=1)
        def documents(number: int) -> Documents:
            return self.task.documents(self.seed, "train", number * self._drawn, (number + 1) * self._drawn)

        return documents

    def _alike(self, pool: Documents, epoch: int, first: int, batches: int) -> Int[ndarray, "batches batch"]:
        """Rows of batches whose documents are about as long, the batches in any order."""
        rows = np.argsort(pool.lengths, kind="stable").reshape(batches, -1)
        return rows[permutation(key_of("bucket", self.seed, epoch, first), batches)]

    def _shown(self, steps: int) -> Bool[ndarray, " documents"]:
        """Which documents are in a batch of any epoch: not all where steps are few or a batch is not filled."""
        shown = np.zeros(self.config.documents, bool)
        for epoch in range(-(-steps // self._per_epoch)):
            begun = min(self._per_epoch, steps - epoch * self._per_epoch)
            whole = begun - begun % self.config.bucket
            shown[order(self.seed, epoch, self.config.documents)[: whole * self.config.batch]] = True
            for place in range(whole, begun):
                shown[self[epoch * self._per_epoch + place].index] = True
            if shown.all():
                break
        return shown

    @property
    def _per_epoch(self) -> int:
        """Steps of an epoch; fresh documents are a single one."""
        return self.config.documents // self.config.batch or self.config.total

    @cached_property
    def _documents(self) -> Documents:
        return self.task.documents(self.seed, "train", 0, self.config.documents)


@lru_cache(maxsize=2)
def order(seed: int, epoch: int, documents: int) -> Int[ndarray, " documents"]:
    """The order of an epoch."""
    found = permutation(key_of("order", seed, epoch), documents)
    return np.asarray(found)
