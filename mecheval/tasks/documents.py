"""A block of documents as arrays: what a task draws, a model reads and an intervention corrupts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int, Int16, Int32, Int64, Shaped
from numpy import ndarray

PAD, BOS, DIVIDER = 0, 1, 2
FIRST_SYMBOL = 3  # ids of keys, values and terminals start here
SPECIALS = {PAD: "<pad>", BOS: "<bos>", DIVIDER: "<div>"}
ROLES = ("bos", "key", "value", "next_key", "divider", "query")
NO_ANSWER = -1


def roles_of(
    key: Int32[ndarray, " n"], value: Int32[ndarray, " n"], query: Int32[ndarray, " n"]
) -> dict[str, Int32[ndarray, " n"]]:
    """All roles, where the divider stands before the query."""
    return dict(zip(ROLES, (np.zeros_like(key), key, value, np.maximum(key, value) + 1, query - 1, query), strict=True))


@dataclass(frozen=True)
class Documents:
    """Row i is document `index[i]`, `lengths[i]` tokens that end at its last query.

    The tokens of all rows are kept end to end; `tokens` lays them out in a table, padded on the right. A role is a
    position in each row. `queries` are the supervised positions, `answers` what is right there; interventions look at
    the first query, which has the role `query`. For tasks with a tree, `parents` gives the position of each token's
    parent, −1 at the root and outside the tree.
    """

    index: Int64[ndarray, " n"]
    flat: Int32[ndarray, " total"]
    lengths: Int32[ndarray, " n"]
    roles: Mapping[str, Int32[ndarray, " n"]]
    queries: Int32[ndarray, "n queries"]
    answers: Int32[ndarray, "n queries"]
    flat_parents: Int16[ndarray, " total"] | None = None

    @cached_property
    def tokens(self) -> Int32[ndarray, "n time"]:
        return self._table(self.flat, PAD)

    @cached_property
    def parents(self) -> Int16[ndarray, "n time"] | None:
        return None if self.flat_parents is None else self._table(self.flat_parents, -1)

    @property
    def answer(self) -> Int32[ndarray, " n"]:
        """What is to be recalled at the role `query`; NO_ANSWER where a corruption took it away."""
        return self.answers[:, 0]

    def at(self, role: str) -> Int32[ndarray, " n"]:
        """The token each document has at a role."""
        return self.flat[self._starts + self.roles[role]]

    def with_tokens(self, tokens: Int32[ndarray, "n time"]) -> "Documents":
        return replace(self, flat=tokens[self._inside])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, rows: slice | Int[ndarray, " m"] | Bool[ndarray, " n"]) -> "Documents":
        """Some of the documents, in the order asked for."""
        starts, lengths = self._starts[rows], self.lengths[rows]
        taken: slice | Int64[ndarray, " total"]
        if isinstance(rows, slice) and rows.step in (None, 1) and len(starts):
            taken = slice(starts[0], starts[-1] + lengths[-1])
        else:
            ends = np.cumsum(lengths)
            taken = np.arange(lengths.sum()) + np.repeat(starts - ends + lengths, lengths)
        return Documents(
            index=self.index[rows],
            flat=self.flat[taken],
            lengths=lengths,
            roles={role: position[rows] for role, position in self.roles.items()},
            queries=self.queries[rows],
            answers=self.answers[rows],
            flat_parents=None if self.flat_parents is None else self.flat_parents[taken],
        )

    @property
    def nbytes(self) -> int:
        arrays = [self.index, self.flat, self.lengths, self.queries, self.answers, *self.roles.values()]
        return sum(array.nbytes for array in arrays) + (0 if self.flat_parents is None else self.flat_parents.nbytes)

    @cached_property
    def _starts(self) -> Int64[ndarray, " n"]:
        return np.cumsum(self.lengths, dtype=np.int64) - self.lengths

    @property
    def _inside(self) -> Bool[ndarray, "n time"]:
        return np.arange(self.lengths.max(initial=0)) < self.lengths[:, None]

    def _table(self, flat: Shaped[ndarray, " total"], fill: int) -> Shaped[ndarray, "n time"]:
        if len(flat) == len(self) * self.lengths.max(initial=0):  # all are as long, as documents of AR are
            return flat.reshape(len(self), -1) if len(self) else flat.reshape(0, 0)
        inside = self._inside
        table = np.full(inside.shape, fill, flat.dtype)
        table[inside] = flat
        return table


@dataclass(frozen=True)
class Corrupted:
    """Twins of documents, answers recomputed; `usable` where the answer did not survive the corruption."""

    documents: Documents
    usable: Bool[ndarray, " n"]
