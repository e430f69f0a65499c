"""Recall by keys of two tokens, neither of which decides.

BOS a b v a b′ v′ a′ b v″ … DIVIDER a b → v

Follows zoology's `compositional_mqar`: every first half stands with every second half, so that an
architecture must bind two tokens before it can look anything up.
"""

from collections.abc import Callable
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
    Documents,
    lay_out,
    roles_of,
    word_of_class,
)
from mecheval.tasks.lookup import last_match, symbols_before_divider
from mecheval.tasks.philox import key_of
from mecheval.tasks.reference import Choices, Pack, PlainDocument
from mecheval.tasks.splits import Split
from mecheval.tasks.task import numbers, spec_of

VocabSize = Annotated[int, Field(ge=12, le=2**22)]
CLASSES = {"first_half": 0, "first_query": 0, "key": 1, "query": 1, "value": 2}


def _thirds_are_whole(vocab: int) -> str | None:
    if vocab % 3:
        return f"vocab={vocab} must be divisible by 3: first halves, second halves and values"
    return None


def _symbols_suffice(grid: int, vocab: int) -> str | None:
    if grid**2 > vocab // 3:
        return f"grid={grid} needs {grid**2} values; vocab={vocab} has {vocab // 3}"
    return None


def _triples_suffice(queries: int, grid: int) -> str | None:
    if queries > grid**2:
        return f"queries={queries} must be at most {grid**2}, the triples of grid={grid}"
    return None


@dataclass(frozen=True, kw_only=True)
class Compose:
    """Recall by keys of two tokens: each half stands with every other, and both decide.

    Parameters
    ----------
    grid
        First halves, and second halves; a document has a triple for each of their pairs.
    queries
        Keys that are asked.
    vocab
        First halves, second halves and values, a third each.

    Examples
    --------
    >>> from mecheval import build_task
    >>> task = build_task("compose:grid=2,queries=1,vocab=24")
    >>> docs = task.documents(0, "test", 0, 1)
    >>> task.corrupt(docs, "first_half").usable.tolist()
    [True]
    """

    grid: Annotated[int, Field(ge=2, le=32, description="first halves, and second halves")] = 2
    queries: Annotated[int, Field(ge=1, le=2**10, description="keys that are asked")] = 4
    vocab: Annotated[VocabSize, Field(description="both halves and values, a third each")] = 8190

    constraints: ClassVar[tuple[Callable[..., str | None], ...]] = (
        _thirds_are_whole,
        _symbols_suffice,
        _triples_suffice,
    )
    variables: ClassVar[tuple[Role, ...]] = ("key", "first_half", "value", "query", "first_query")

    def __post_init__(self) -> None:
        settle(self)

    @cached_property
    def key(self) -> str:
        return spec_of("compose", self).key

    @property
    def vocab_size(self) -> int:
        return FIRST_SYMBOL + self.vocab

    @property
    def max_len(self) -> int:
        return 2 + 3 * self.grid**2 + 2 * self.queries

    @property
    def _shape(self) -> tuple[int, int, int]:
        return self.vocab // 3, self.grid, self.queries

    def documents(self, seed: Seed, split: Split, start: int, stop: int) -> Documents:
        from mecheval.tasks.kernels.compose import draw_compose

        index = numbers(seed, split, start, stop)
        tokens = np.empty((len(index), self.max_len), np.int32)
        asked = np.empty((len(index), self.queries), np.int32)
        draw_compose(np.uint64(key_of(self.key, seed, split)), index, *self._shape, tokens, asked)
        divider = self.max_len - 2 * self.queries - 1
        places = divider + 2 + 2 * np.arange(self.queries, dtype=np.int32)
        queries = np.tile(places, (len(index), 1))
        first_half = 1 + 3 * asked[:, 0]
        roles = roles_of(first_half + 1, first_half + 2, queries[:, 0])
        roles |= {"divider": queries[:, 0] - 2, "first_half": first_half}
        roles["first_query"] = queries[:, 0] - 1
        answers = np.take_along_axis(tokens, 3 * asked + 3, axis=1)
        return lay_out(index, tokens, roles, queries, answers)

    def reference(self, rng: Choices, split: Split) -> PlainDocument:
        """Draw one document in plain Python."""
        return compose_ref(rng, *self._shape)

    corrupt = corrupt

    def symbols(self, role: Role) -> range:
        first = FIRST_SYMBOL + CLASSES[role] * (self.vocab // 3)
        return range(first, first + self.vocab // 3)

    def partners(self, docs: Documents, role: Role) -> Bool[ndarray, "n time"]:
        """Mark the tokens of the class before the divider, those of a half beside the same other.

        So a swap of two halves leaves an answer.
        """
        marked = symbols_before_divider(docs, self.symbols(role))
        if role == "value":
            return marked
        other, side = ("first_half", -1) if CLASSES[role] else ("key", 1)
        return marked & (np.roll(docs.tokens, -side, axis=1) == docs.at(other)[:, None])

    def answers(self, docs: Documents) -> Int32[ndarray, "n queries"]:
        second = np.take_along_axis(docs.tokens, docs.queries, axis=1)
        first = np.take_along_axis(docs.tokens, docs.queries - 1, axis=1)
        values = symbols_before_divider(docs, self.symbols("value"))
        one, two = np.roll(docs.tokens, 2, axis=1), np.roll(docs.tokens, 1, axis=1)
        answers = np.full_like(second, NO_ANSWER)
        for j in range(second.shape[1]):
            found = values & (one == first[:, j, None]) & (two == second[:, j, None])
            last, rows = last_match(found)
            answers[rows, j] = docs.tokens[rows, last[rows]]
        return answers

    def word(self, token: int) -> str:
        return word_of_class(token, "abv", self.vocab // 3)


def compose_ref(rng: Choices, third: int, grid: int, queries: int) -> PlainDocument:
    """Draw BOS, a triple for each cell of a grid in random order, DIVIDER and queries."""
    cells = grid**2
    packs = (Pack(third), grid), (Pack(third), grid), (Pack(third), cells), (Pack(cells), cells)
    firsts, seconds, values, order = ([p.draw(rng) for _ in range(count)] for p, count in packs)
    chosen = Pack(cells)
    asked = [chosen.draw(rng) for _ in range(queries)]

    triples = []
    for cell, value in zip(order, values, strict=True):
        first, second = divmod(cell, grid)
        numbers = firsts[first], third + seconds[second], 2 * third + value
        triples.append([FIRST_SYMBOL + number for number in numbers])
    tokens = [BOS, *(token for triple in triples for token in triple), DIVIDER]
    positions = [len(tokens) + 1 + 2 * j for j in range(queries)]
    for i in asked:
        tokens += triples[i][:2]
    at = 1 + 3 * asked[0]
    roles = {"first_half": at, "key": at + 1, "value": at + 2, "first_query": positions[0] - 1}
    return PlainDocument(tokens, roles, positions, [triples[i][2] for i in asked])
