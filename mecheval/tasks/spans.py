"""Recall with keys and values of several tokens; the value is answered token by token.

BOS k k v v v k v … DIVIDER k k [v v] → v v v

Follows mad-lab's fuzzy in-context recall. A short convolution cannot reach from the end of a long
value to the beginning of its key.
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

Size = Annotated[int, Field(ge=1, le=16)]
VocabSize = Annotated[int, Field(ge=2, le=2**16, multiple_of=2)]


def _symbols_suffice(key_tokens: int, value_tokens: int, vocab: int) -> str | None:
    for name, size in (("key_tokens", key_tokens), ("value_tokens", value_tokens)):
        if size > vocab // 2:
            return f"{name}={size} must be at most {vocab // 2}, half of vocab={vocab}"
    return None


def _range_ascends(min_tokens: int, key_tokens: int, value_tokens: int) -> str | None:
    for name, size in (("key_tokens", key_tokens), ("value_tokens", value_tokens)):
        if min_tokens > size:
            return f"min_tokens={min_tokens} must be at most {name}={size}"
    return None


@dataclass(frozen=True, kw_only=True)
class Spans:
    """Recall with keys and values of several tokens; the value is answered token by token.

    Parameters
    ----------
    pairs
        Pairs in a document; a key that is drawn again has the same value.
    key_tokens
        Most tokens of a key.
    value_tokens
        Most tokens of a value.
    min_tokens
        Fewest tokens of either; the number is uniform.
    vocab
        Symbols of keys and of values, half each.

    Examples
    --------
    >>> from mecheval import build_task
    >>> task = build_task("spans:pairs=4,vocab=16,min_tokens=2,value_tokens=2")
    >>> docs = task.documents(0, "test", 0, 1)
    >>> docs.queries.shape, task.max_len
    ((1, 2), 26)
    """

    pairs: Annotated[int, Field(ge=1, le=2**10, description="pairs in a document")] = 8
    key_tokens: Annotated[Size, Field(description="most tokens of a key")] = 3
    value_tokens: Annotated[Size, Field(description="most tokens of a value")] = 3
    min_tokens: Annotated[Size, Field(description="fewest tokens of either")] = 1
    vocab: Annotated[VocabSize, Field(description="symbols of keys and values, half each")] = 64

    constraints: ClassVar[tuple[Callable[..., str | None], ...]] = (
        _symbols_suffice,
        _range_ascends,
    )
    variables: ClassVar[tuple[Role, ...]] = (
        "key",
        "first_key",
        "value",
        "last_value",
        "query",
        "first_query",
    )

    def __post_init__(self) -> None:
        settle(self)

    @cached_property
    def key(self) -> str:
        return spec_of("spans", self).key

    @property
    def vocab_size(self) -> int:
        return FIRST_SYMBOL + self.vocab

    @property
    def max_len(self) -> int:
        return 1 + (self.pairs + 1) * (self.key_tokens + self.value_tokens)

    @property
    def _shape(self) -> tuple[int, int, int, tuple[int, int]]:
        sizes = (self.key_tokens, self.value_tokens)
        return self.vocab // 2, self.pairs, self.min_tokens, sizes

    def documents(self, seed: Seed, split: Split, start: int, stop: int) -> Documents:
        from mecheval.tasks.kernels.spans import draw_spans

        index = numbers(seed, split, start, stop)
        tokens = np.empty((len(index), self.max_len + 1), np.int32)  # the last one is not fed
        queries, answers = np.empty((2, len(index), self.value_tokens), np.int32)
        places = np.empty((len(index), 4), np.int32)
        stream = np.uint64(key_of(self.key, seed, split))
        draw_spans(stream, index, *self._shape, tokens, places, queries, answers)
        first_key, value, next_key, divider = places.T
        roles = roles_of(value - 1, value, queries[:, 0])
        roles |= {"next_key": next_key, "divider": divider, "first_key": first_key}
        roles |= {"last_value": next_key - 1, "first_query": divider + 1}
        return lay_out(index, tokens, roles, queries, answers)

    def reference(self, rng: Choices, split: Split) -> PlainDocument:
        """Draw one document in plain Python."""
        return spans_ref(rng, *self._shape)

    corrupt = corrupt

    def symbols(self, role: Role) -> range:
        first = FIRST_SYMBOL + (self.vocab // 2 if "value" in role else 0)
        return range(first, first + self.vocab // 2)

    def partners(self, docs: Documents, role: Role) -> Bool[ndarray, "n time"]:
        """Mark the tokens of the same class before the divider."""
        return symbols_before_divider(docs, self.symbols(role))

    def answers(self, docs: Documents) -> Int32[ndarray, "n queries"]:
        tokens = docs.tokens
        keys, values = (symbols_before_divider(docs, self.symbols(r)) for r in ("key", "value"))
        asked = docs.roles["query"] - docs.roles["divider"]
        ends = keys & np.roll(values, -1, axis=1)
        for t in range(self.key_tokens + 1):
            there = np.roll(tokens, t, axis=1)
            query = np.take_along_axis(tokens, (docs.roles["query"] - t)[:, None], axis=1)
            whole = np.where((t == asked)[:, None], ~np.roll(keys, t, axis=1), there == query)
            ends &= whole | (t > asked)[:, None]
        last, rows = last_match(ends)
        answers = np.full_like(docs.answers, NO_ANSWER)
        inside = np.ones(len(rows), bool)
        for t in range(self.value_tokens):
            place = np.minimum(last[rows] + 1 + t, tokens.shape[1] - 1)
            inside &= values[rows, place]
            here = inside[:, None] & (docs.queries[rows] - docs.queries[rows, :1] == t)
            answers[rows] = np.where(here, tokens[rows, place][:, None], answers[rows])
        return answers

    def word(self, token: int) -> str:
        return word_of_class(token, "kv", self.vocab // 2)


def spans_ref(
    rng: Choices, symbols: int, pairs: int, shortest: int, sizes: tuple[int, int]
) -> PlainDocument:
    """Draw BOS, pairs of spans, DIVIDER, a key, and the tokens of its value but the last."""
    memory: dict[tuple[int, ...], tuple[int, ...]] = {}
    keys, starts, tokens = [], [], [BOS]
    for _ in range(pairs):
        spans = []
        for side in range(2):
            pack = Pack(symbols)
            length = shortest + rng.below(sizes[side] - shortest + 1)
            first = FIRST_SYMBOL + side * symbols
            spans.append(tuple(first + pack.draw(rng) for _ in range(length)))
        key, value = spans
        keys.append(key)
        starts.append(len(tokens))
        tokens += [*key, *memory.setdefault(key, value)]
    asked = keys[rng.below(pairs)]
    start = starts[pairs - 1 - keys[::-1].index(asked)]
    answers, divider = memory[asked], len(tokens)
    first = divider + len(asked)
    tokens += [DIVIDER, *asked, *answers[:-1]]
    steps = [min(t, len(answers) - 1) for t in range(sizes[1])]
    at = start + len(asked)
    roles = {"first_key": start, "key": at - 1, "value": at, "divider": divider}
    roles |= {"last_value": at + len(answers) - 1, "next_key": at + len(answers)}
    return PlainDocument(tokens, roles, [first + t for t in steps], [answers[t] for t in steps])
