"""Documents as arrays: a task draws them, a model reads them, an intervention corrupts them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Int, Int16, Int32, Int64, Shaped
from numpy import ndarray

from mecheval.core.notebook import short

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

PAD = 0
BOS = 1
DIVIDER = 2
FIRST_SYMBOL = 3  # ids of keys, values and terminals start here
SPECIALS = {PAD: "<pad>", BOS: "<bos>", DIVIDER: "<div>"}
ROLES = ("bos", "key", "value", "next_key", "divider", "query")
NO_ANSWER = -1


def word_of_class(token: int, letters: str, size: int) -> str:
    """Return a special token's name, else the letter of its class and its number there."""
    number = token - FIRST_SYMBOL
    return SPECIALS[token] if number < 0 else f"{letters[number // size]}{number % size}"


def roles_of(
    key: Int32[ndarray, " n"], value: Int32[ndarray, " n"], query: Int32[ndarray, " n"]
) -> dict[str, Int32[ndarray, " n"]]:
    """Return all roles of documents in which the divider stands before the query.

    Parameters
    ----------
    key
        Position of the key in each document.
    value
        Position of the value.
    query
        Position of the query.

    Returns
    -------
    dict
        Positions by role, for `Documents`.

    Examples
    --------
    >>> import numpy as np
    >>> from mecheval import roles_of
    >>> at = np.array([1], np.int32)
    >>> {role: int(place[0]) for role, place in roles_of(at, at + 1, at + 5).items()}
    {'bos': 0, 'key': 1, 'value': 2, 'next_key': 3, 'divider': 5, 'query': 6}
    """
    next_key = np.maximum(key, value) + 1
    positions = (np.zeros_like(key), key, value, next_key, query - 1, query)
    return dict(zip(ROLES, positions, strict=True))


@dataclass(frozen=True)
class Documents:
    """A block of documents: row i is document `index[i]`, whose last token is its last query.

    `flat` holds the tokens of all rows end to end; `tokens` pads them on the right to a table. A
    role is a position in each row. `queries` are the supervised positions, `answers` the tokens
    there; interventions use the first query, which has the role `query`. For tasks with a tree,
    `parents` gives the position of each token's parent, −1 at the root and outside the tree.

    Parameters
    ----------
    index
        Number of each document.
    flat
        Tokens of all documents, end to end.
    lengths
        Tokens of each document.
    roles
        By role, a position in each document.
    queries
        Supervised positions.
    answers
        Right tokens there; −1 for none.
    flat_parents
        Position of each token's parent, for tasks with a tree.

    Examples
    --------
    >>> from mecheval import Recall
    >>> task = Recall(pairs=2, vocab=8)
    >>> docs = task.documents(0, "test", 0, 100)
    >>> docs
    Documents(100 of 7 tokens; roles bos, key, value, next_key, divider, query)
    >>> docs[:10].at("query").shape, docs.tokens.shape
    ((10,), (100, 7))
    >>> docs.to_frame(task.word).columns.tolist()
    ['document', 'position', 'token', 'role', 'answer']
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
        """The right answer at the role `query`; NO_ANSWER where a corruption removed it."""
        return self.answers[:, 0]

    def at(self, role: str) -> Int32[ndarray, " n"]:
        """Return the token that each document has at a role."""
        return self.flat[self._starts + self.roles[role]]

    def with_tokens(self, tokens: Int32[ndarray, "n time"]) -> "Documents":
        """Return the same documents with other tokens of the same lengths."""
        return replace(self, flat=tokens[self._inside])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, rows: slice | Int[ndarray, " m"] | Bool[ndarray, " n"]) -> "Documents":
        """Select documents, in the order of `rows`."""
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

    def to_frame(self, word: Callable[[int], str] | None = None) -> "DataFrame":
        """Return a pandas DataFrame with a row for each token.

        `word` names a token, as `task.word` does; without it a token is its id.
        """
        from mecheval.tasks.document_view import documents_frame, lines_of

        return documents_frame(lines_of(self, word, len(self)))

    def plot(self, word: Callable[[int], str] | None = None, documents: int = 8) -> "Figure":
        """Return a matplotlib figure of the first documents, their roles coloured."""
        from mecheval.tasks.document_view import documents_figure, lines_of

        return documents_figure(repr(self), lines_of(self, word, documents))

    def __repr__(self) -> str:
        low, high = self.lengths.min(initial=2**31 - 1), self.lengths.max(initial=0)
        tokens = f"{high}" if low >= high else f"{low}–{high}"
        return short(f"Documents({len(self)} of {tokens} tokens; roles {', '.join(self.roles)})")

    def _repr_html_(self) -> str:
        from mecheval.tasks.document_view import SHOWN, documents_html, lines_of

        return documents_html(repr(self), lines_of(self, None, SHOWN))

    @property
    def nbytes(self) -> int:
        arrays: list[ndarray | None] = [
            self.index,
            self.flat,
            self.lengths,
            self.queries,
            self.answers,
        ]
        arrays += [*self.roles.values(), self.flat_parents]
        return sum(array.nbytes for array in arrays if array is not None)

    @cached_property
    def _starts(self) -> Int64[ndarray, " n"]:
        return np.cumsum(self.lengths, dtype=np.int64) - self.lengths

    @property
    def _inside(self) -> Bool[ndarray, "n time"]:
        return np.arange(self.lengths.max(initial=0)) < self.lengths[:, None]

    def _table(self, flat: Shaped[ndarray, " total"], fill: int) -> Shaped[ndarray, "n time"]:
        if len(flat) == len(self) * self.lengths.max(initial=0):  # all of one length, as in AR
            return flat.reshape(len(self), -1) if len(self) else flat.reshape(0, 0)
        inside = self._inside
        table = np.full(inside.shape, fill, flat.dtype)
        table[inside] = flat
        return table


def lay_out(
    index: Int64[ndarray, " n"],
    tokens: Int32[ndarray, "n time"],
    roles: Mapping[str, Int32[ndarray, " n"]],
    queries: Int32[ndarray, "n queries"],
    answers: Int32[ndarray, "n queries"],
) -> Documents:
    """Return the documents in the rows of a table, each up to its last query."""
    lengths = queries.max(axis=1, initial=0) + 1
    inside = np.arange(tokens.shape[1]) < lengths[:, None]
    flat = tokens.ravel() if inside.all() else tokens[inside]
    return Documents(index, flat, lengths, roles, queries, answers)


@dataclass(frozen=True)
class Corrupted:
    """Corrupted twins of documents; `usable` marks those whose answer the corruption changed.

    Parameters
    ----------
    documents
        The twins.
    usable
        One boolean for each.

    Examples
    --------
    >>> from mecheval import Recall
    >>> task = Recall(pairs=2, vocab=64)
    >>> task.corrupt(task.documents(0, "test", 0, 10), "key")
    Corrupted(10 of 10 documents are usable)
    """

    documents: Documents
    usable: Bool[ndarray, " n"]

    def __repr__(self) -> str:
        return f"Corrupted({self.usable.sum()} of {len(self.documents)} documents are usable)"

    def _repr_html_(self) -> str:
        return self.documents._repr_html_()
