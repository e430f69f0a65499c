"""Overwriting recall: some keys are read again with another value, and the last one counts.

BOS k₁ v₁ … kₙ vₙ u₁ w₁ … uₘ wₘ DIVIDER q₁ … → answers

Follows zoology's `forgetting_mqar`. An architecture that erases answers the new value, one that
only adds or decays confuses it with the old one.
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
    Documents,
    lay_out,
    roles_of,
    word_of_class,
)
from mecheval.tasks.lookup import beside, symbols_before_divider
from mecheval.tasks.philox import key_of
from mecheval.tasks.reference import Choices, Pack, PlainDocument
from mecheval.tasks.splits import Split
from mecheval.tasks.task import numbers, spec_of

Count = Annotated[int, Field(ge=1, le=2**11)]
VocabSize = Annotated[int, Field(ge=4, le=2**22, multiple_of=2)]


def _keys_suffice(pairs: int, vocab: int) -> str | None:
    if pairs > vocab // 2:
        return f"pairs={pairs} must be at most {vocab // 2}, the number of keys in vocab={vocab}"
    return None


def _pairs_suffice(updates: int, queries: int, pairs: int) -> str | None:
    for name, count in (("updates", updates), ("queries", queries)):
        if count > pairs:
            return f"{name}={count} must be at most pairs={pairs}"
    return None


@dataclass(frozen=True, kw_only=True)
class Overwrite:
    """Overwriting recall: some keys are read again with another value, and the last one counts.

    Parameters
    ----------
    pairs
        Pairs in a document.
    updates
        Keys that are read again with another value.
    queries
        Keys that are asked; the first is an updated one.
    vocab
        Keys and values, half each.

    Examples
    --------
    >>> from mecheval import build_task
    >>> task = build_task("overwrite:pairs=3,updates=2,queries=2,vocab=16")
    >>> docs = task.documents(0, "test", 0, 1)
    >>> bool((docs.at("key") == docs.at("old_key")).all())
    True
    """

    pairs: Annotated[Count, Field(description="key–value pairs in a document")] = 8
    updates: Annotated[Count, Field(description="keys read again with another value")] = 4
    queries: Annotated[Count, Field(description="queries; the first is an updated key")] = 8
    vocab: Annotated[VocabSize, Field(description="keys and values, half each")] = 8192

    constraints: ClassVar[tuple[Callable[..., str | None], ...]] = (_keys_suffice, _pairs_suffice)
    variables: ClassVar[tuple[Role, ...]] = ("key", "value", "query", "old_key", "old_value")

    def __post_init__(self) -> None:
        settle(self)

    @cached_property
    def key(self) -> str:
        return spec_of("overwrite", self).key

    @property
    def vocab_size(self) -> int:
        return FIRST_SYMBOL + self.vocab

    @property
    def max_len(self) -> int:
        return 2 + 2 * (self.pairs + self.updates) + self.queries

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        return self.vocab // 2, self.pairs, self.updates, self.queries

    def documents(self, seed: Seed, split: Split, start: int, stop: int) -> Documents:
        from mecheval.tasks.kernels.overwrite import draw_overwrite

        index = numbers(seed, split, start, stop)
        tokens = np.empty((len(index), self.max_len), np.int32)
        asked, answers = np.empty((2, len(index), self.queries), np.int32)
        updated = np.empty(len(index), np.int32)
        stream = np.uint64(key_of(self.key, seed, split))
        draw_overwrite(stream, index, *self._shape, tokens, asked, updated, answers)
        key, old_key = 1 + 2 * (self.pairs + updated), 1 + 2 * asked[:, 0]
        places = np.arange(self.max_len - self.queries, self.max_len, dtype=np.int32)
        queries = np.tile(places, (len(index), 1))
        roles = roles_of(key, key + 1, queries[:, 0])
        roles |= {"old_key": old_key, "old_value": old_key + 1}
        return lay_out(index, tokens, roles, queries, answers)

    def reference(self, rng: Choices, split: Split) -> PlainDocument:
        """Draw one document in plain Python."""
        return overwrite_ref(rng, *self._shape)

    corrupt = corrupt

    def symbols(self, role: Role) -> range:
        values = role in ("value", "old_value")
        first = FIRST_SYMBOL + (self.vocab // 2 if values else 0)
        return range(first, first + self.vocab // 2)

    def partners(self, docs: Documents, role: Role) -> Bool[ndarray, "n time"]:
        """Mark the tokens of the same class before the divider."""
        return symbols_before_divider(docs, self.symbols(role))

    def answers(self, docs: Documents) -> Int32[ndarray, "n queries"]:
        return beside(docs, self.partners(docs, "key"))

    def word(self, token: int) -> str:
        return word_of_class(token, "kv", self.vocab // 2)


def overwrite_ref(
    rng: Choices, symbols: int, pairs: int, updates: int, queries: int
) -> PlainDocument:
    """Draw BOS k₁ v₁ … kₙ vₙ u₁ w₁ … uₘ wₘ DIVIDER q₁ …, the first query an updated key."""
    pack_of_keys, pack_of_values, pack = Pack(symbols), Pack(symbols), Pack(pairs)
    keys = [pack_of_keys.draw(rng) for _ in range(pairs)]
    old = [pack_of_values.draw(rng) for _ in range(pairs)]
    chosen = [pack.draw(rng) for _ in range(updates)]
    new = {}
    for i in chosen:
        value = rng.below(symbols - 1)
        new[i] = value + (value >= old[i])
    first = rng.below(updates)
    rest, pack = [i for i in range(pairs) if i != chosen[first]], Pack(pairs - 1)
    asked = [chosen[first], *(rest[pack.draw(rng)] for _ in range(queries - 1))]

    written = [*zip(keys, old, strict=True), *((keys[i], new[i]) for i in chosen)]
    tokens = [BOS]
    for k, v in written:
        tokens += [FIRST_SYMBOL + k, FIRST_SYMBOL + symbols + v]
    tokens.append(DIVIDER)
    positions = list(range(len(tokens), len(tokens) + queries))
    tokens += [FIRST_SYMBOL + keys[i] for i in asked]
    answers = [FIRST_SYMBOL + symbols + new.get(i, old[i]) for i in asked]
    key, old_key = 1 + 2 * (pairs + first), 1 + 2 * asked[0]
    roles = {"key": key, "value": key + 1, "old_key": old_key, "old_value": old_key + 1}
    return PlainDocument(tokens, roles, positions, answers)
