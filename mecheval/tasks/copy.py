"""Selective copying: symbols among blanks, then all of them in order.

BOS _ s₁ _ _ s₂ _ s₃ DIVIDER _ _ _ → s₁ s₂ s₃

Follows mad-lab. What is asked depends on the order alone: no token of the question names it.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np
from jaxtyping import Bool, Int32
from numpy import ndarray

from mecheval.core.options import Field, settle
from mecheval.tasks.corruption import Role, Seed, corrupt
from mecheval.tasks.documents import (
    BOS,
    DIVIDER,
    FIRST_SYMBOL,
    NO_ANSWER,
    SPECIALS,
    Documents,
    lay_out,
)
from mecheval.tasks.lookup import one_first, symbols_before_divider
from mecheval.tasks.philox import key_of
from mecheval.tasks.reference import Choices, PlainDocument
from mecheval.tasks.splits import Split
from mecheval.tasks.task import numbers, spec_of

Symbols = Annotated[int, Field(ge=2, le=2**16)]


@dataclass(frozen=True, kw_only=True)
class Copy:
    """Selective copying: symbols among blanks, then all of them in order.

    Parameters
    ----------
    count
        Symbols to copy.
    blanks
        Blanks among them.
    vocab
        Different symbols.

    Examples
    --------
    >>> from mecheval import build_task
    >>> task = build_task("copy:count=3,blanks=4,vocab=8")
    >>> docs = task.documents(0, "test", 0, 1)
    >>> " ".join(task.word(token) for token in docs.tokens[0].tolist())
    '<bos> _ _ s1 _ s0 _ s2 <div> _ _ _'
    """

    count: Annotated[int, Field(ge=1, le=2**10, description="symbols to copy")] = 16
    blanks: Annotated[int, Field(ge=0, le=2**14, description="blanks among them")] = 223
    vocab: Annotated[Symbols, Field(description="different symbols")] = 14

    variables: ClassVar[tuple[Role, ...]] = ("value",)

    def __post_init__(self) -> None:
        settle(self)

    @cached_property
    def key(self) -> str:
        return spec_of("copy", self).key

    @property
    def vocab_size(self) -> int:
        return FIRST_SYMBOL + self.vocab + 1

    @property
    def max_len(self) -> int:
        return 2 + 2 * self.count + self.blanks

    @property
    def _shape(self) -> tuple[int, int, int]:
        return self.vocab, self.count, self.blanks

    def documents(self, seed: Seed, split: Split, start: int, stop: int) -> Documents:
        from mecheval.tasks.kernels.copy import draw_copy

        index = numbers(seed, split, start, stop)
        tokens = np.empty((len(index), self.max_len), np.int32)
        places = np.empty((len(index), self.count), np.int32)
        ranks = np.empty(len(index), np.int32)
        draw_copy(
            np.uint64(key_of(self.key, seed, split)), index, *self._shape, tokens, places, ranks
        )
        order = one_first(ranks, self.count)
        divider = np.full(len(index), 1 + self.count + self.blanks, np.int32)
        queries = divider[:, None] + 1 + order
        rows = np.arange(len(index))
        after = np.concatenate([places, divider[:, None]], axis=1)[rows, ranks + 1]
        roles = {"bos": np.zeros_like(ranks), "value": places[rows, ranks], "next_value": after}
        roles |= {"divider": divider, "query": queries[:, 0]}
        answers = np.take_along_axis(tokens, np.take_along_axis(places, order, axis=1), axis=1)
        return lay_out(index, tokens, roles, queries, answers)

    def reference(self, rng: Choices, split: Split) -> PlainDocument:
        """Draw one document in plain Python."""
        return copy_ref(rng, *self._shape)

    corrupt = corrupt

    def symbols(self, role: Role) -> range:
        return range(FIRST_SYMBOL, FIRST_SYMBOL + self.vocab)

    def partners(self, docs: Documents, role: Role) -> Bool[ndarray, "n time"]:
        """Mark the other symbols."""
        return symbols_before_divider(docs, self.symbols(role))

    def answers(self, docs: Documents) -> Int32[ndarray, "n queries"]:
        marked = self.partners(docs, "value")
        rank = np.cumsum(marked, axis=1)
        asked = docs.queries - docs.roles["divider"][:, None]
        answers = np.full_like(docs.queries, NO_ANSWER)
        for j in range(self.count):
            place = np.argmax(marked & (rank == asked[:, j, None]), axis=1)
            found = rank[:, -1] >= asked[:, j]
            answers[found, j] = docs.tokens[found, place[found]]
        return answers

    def word(self, token: int) -> str:
        number = token - FIRST_SYMBOL
        if number < 0:
            return SPECIALS[token]
        return f"s{number}" if number < self.vocab else "_"


def copy_ref(rng: Choices, symbols: int, count: int, blanks: int) -> PlainDocument:
    """Draw BOS, symbols with blanks before each, DIVIDER, and a blank for each answer."""
    drawn = [FIRST_SYMBOL + rng.below(symbols) for _ in range(count)]
    before = [rng.below(count) for _ in range(blanks)]
    rank, blank = rng.below(count), FIRST_SYMBOL + symbols
    tokens, places = [BOS], []
    for i, symbol in enumerate(drawn):
        tokens += before.count(i) * [blank]
        places.append(len(tokens))
        tokens.append(symbol)
    divider = len(tokens)
    tokens += [DIVIDER, *count * [blank]]
    order = [rank, *(i for i in range(count) if i != rank)]
    roles = {"value": places[rank], "next_value": [*places, divider][rank + 1], "divider": divider}
    return PlainDocument(tokens, roles, [divider + 1 + i for i in order], [drawn[i] for i in order])
