"""The documents of every step, as a pure function of (task, seed, config, step)."""

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
    """The batches of a training run: shuffled in every epoch, or fresh if `config.documents` is 0.

    With a `config.bucket` of several batches their documents are sorted by length, to save padding.
    """

    task: Task
    seed: int
    config: TrainConfig

    def __getitem__(self, step: int) -> Documents:
        epoch, place = divmod(step, self._per_epoch)
        first = place - place % self.config.bucket
        return self._bucket(epoch, first)[place - first]

    def blocks(self, steps: int) -> Iterator[Documents]:
        """Yield all documents that the first `steps` steps see."""
        if self.config.documents:
            yield self._documents[self._seen(steps)]
            return
        whole = steps - steps % self.config.bucket
        for start in range(0, whole * self.config.batch, BLOCK):
            stop = min(start + BLOCK, whole * self.config.batch)
            yield self.task.documents(self.seed, "train", start, stop)
        for step in range(whole, steps):
            yield self[step]

    @cached_property
    def _bucket(self) -> Callable[[int, int], list[Documents]]:
        """A function that returns the batches of the bucket at a step of an epoch, caching one."""

        @lru_cache(maxsize=1)
        def batches(epoch: int, first: int) -> list[Documents]:
            count = min(self.config.bucket, self._per_epoch - first)
            pool = self._pool(epoch, first, first + count)
            if count == 1:
                return [pool]
            return [pool[rows] for rows in self._sort_by_length(pool, epoch, first, count)]

        return batches

    def _pool(self, epoch: int, start: int, stop: int) -> Documents:
        """Return the documents of some steps of an epoch."""
        rows = slice(start * self.config.batch, stop * self.config.batch)
        if not self.config.documents:
            ahead = self._ahead(rows.start // self._drawn)
            return ahead[rows.start % self._drawn : (rows.stop - 1) % self._drawn + 1]
        return self._documents[order(self.seed, epoch, self.config.documents)[rows]]

    @property
    def _drawn(self) -> int:
        """The number of fresh documents drawn at once."""
        return AHEAD * self.config.bucket * self.config.batch

    @cached_property
    def _ahead(self) -> Callable[[int], Documents]:
        """A function that draws that many fresh documents, caching the last."""

        @lru_cache(maxsize=1)
        def documents(number: int) -> Documents:
            start = number * self._drawn
            return self.task.documents(self.seed, "train", start, start + self._drawn)

        return documents

    def _sort_by_length(
        self, pool: Documents, epoch: int, first: int, batches: int
    ) -> Int[ndarray, "batches batch"]:
        """Return the rows of batches of similar length, the batches in random order."""
        rows = np.argsort(pool.lengths, kind="stable").reshape(batches, -1)
        return rows[permutation(key_of("bucket", self.seed, epoch, first), batches)]

    def _seen(self, steps: int) -> Bool[ndarray, " documents"]:
        """Mark the documents that occur in the first `steps` batches."""
        seen = np.zeros(self.config.documents, bool)
        for epoch in range(-(-steps // self._per_epoch)):
            begun = min(self._per_epoch, steps - epoch * self._per_epoch)
            whole = begun - begun % self.config.bucket
            epoch_order = order(self.seed, epoch, self.config.documents)
            seen[epoch_order[: whole * self.config.batch]] = True
            for place in range(whole, begun):
                seen[self[epoch * self._per_epoch + place].index] = True
            if seen.all():
                break
        return seen

    @property
    def _per_epoch(self) -> int:
        """The steps of an epoch; fresh documents make a single epoch."""
        return self.config.documents // self.config.batch or self.config.total

    @cached_property
    def _documents(self) -> Documents:
        return self.task.documents(self.seed, "train", 0, self.config.documents)


@lru_cache(maxsize=2)
def order(seed: int, epoch: int, documents: int) -> Int[ndarray, " documents"]:
    """Return the order of the documents in an epoch."""
    return np.asarray(permutation(key_of("order", seed, epoch), documents))
