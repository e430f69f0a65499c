"""Associative Recall (paper §4.1, appendix C).

BOS k₁ v₁ … kₙ vₙ DIVIDER q → answer
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from math import exp, lgamma, log, log1p
from typing import Annotated, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Int32, Int64
from numpy import ndarray

from mecheval.core.errors import InvalidInput
from mecheval.core.options import Field, settle
from mecheval.tasks.corruption import Role, Seed, corrupt
from mecheval.tasks.documents import FIRST_SYMBOL, SPECIALS, Documents, lay_out, roles_of
from mecheval.tasks.lookup import beside, symbols_before_divider
from mecheval.tasks.philox import key_of
from mecheval.tasks.reference import Choices, Document, recall_ref
from mecheval.tasks.splits import HeldOut, HeldOutShare, Split, share_complaint, size_of
from mecheval.tasks.task import MAX_ATTEMPTS, numbers, spec_of

MIN_ACCEPTANCE = 0.01
Count = Annotated[int, Field(ge=1, le=2**12)]
VocabSize = Annotated[int, Field(ge=2, le=2**22, multiple_of=2)]
Exponent = Annotated[float, Field(gt=0, le=16)]
Filler = Annotated[int, Field(ge=1, le=2**16)]
Asked = Literal["key", "value"]


def _keys_suffice(pairs: int, vocab: int) -> str | None:
    if pairs > vocab // 2:
        return f"pairs={pairs} must be at most {vocab // 2}, the number of keys in vocab={vocab}"
    return None


def _range_ascends(min_pairs: int | None, pairs: int) -> str | None:
    if min_pairs and min_pairs > pairs:
        return f"min_pairs={min_pairs} must be at most pairs={pairs}"
    return None


def _pairs_suffice(queries: int, min_pairs: int | None, pairs: int) -> str | None:
    fewest = min_pairs or pairs
    if queries > fewest:
        return f"queries={queries} must be at most {fewest}, the fewest pairs of a document"
    return None


def _slots_suffice(slots: int | None, queries: int) -> str | None:
    if slots and slots < queries:
        return f"slots={slots} must be at least queries={queries}"
    return None


def _slots_are_there(slots: int | None, gaps: float, filler: int) -> str | None:
    if slots is None and gaps != 1:
        return f"gaps={gaps:g} needs slots, the number of places for a query"
    if slots is None and filler != 1:
        return f"filler={filler} needs slots, the number of places for a query"
    return None


def _types_divide(held_out: float, vocab: int) -> str | None:
    return share_complaint(held_out, vocab // 2, "values of each key")


def _types_occur(
    held_out: float,
    vocab: int,
    pairs: int,
    min_pairs: int | None,
    queries: int,
) -> str | None:
    """Reject settings for which too few documents have a pair that the split may ask about."""
    n, share = min_pairs or pairs, size_of(vocab // 2, held_out) / (vocab // 2)
    for split, p in (("test", share), ("train", 1 - share)) if 0 < share < 1 else ():
        enough = sum(_binomial(n, i, p) for i in range(queries, n + 1))
        if enough < MIN_ACCEPTANCE:
            share_found = f"only {enough:.1g} of documents have {queries} such pairs among {n}"
            limit = f"at least {MIN_ACCEPTANCE} must have them"
            return f"held_out={held_out} must leave {split} more to ask: {share_found}, {limit}"
    return None


def _binomial(n: int, i: int, p: float) -> float:
    ways = lgamma(n + 1) - lgamma(i + 1) - lgamma(n - i + 1)
    return exp(ways + i * log(p) + (n - i) * log1p(-p))


@dataclass(frozen=True, kw_only=True)
class Recall:
    """Associative Recall: key–value pairs, then a key; answer its value.

    Parameters
    ----------
    pairs
        Pairs in a document.
    min_pairs
        Fewest pairs, if they vary.
    vocab
        Keys and values, half each.
    queries
        Queries in a document; above 1 is MQAR.
    query
        What is shown, `key` or `value`; the other is recalled.
    held_out
        Share of (query, answer) types that only test asks about.
    passes
        How often the pairs are read, each time in the same order.
    slots
        Places for queries after the divider, two tokens each; unset, the queries follow each other.
    gaps
        Exponent a of the power law a·g^(a−1) of a query's slot g; 1 is uniform.
    filler
        Symbols that fill the slots between queries.

    Examples
    --------
    >>> from mecheval import Recall
    >>> task = Recall(pairs=4, vocab=64)
    >>> docs = task.documents(0, "test", 0, 2)  # seed, split, first and last + 1
    >>> " ".join(task.word(token) for token in docs.tokens[0].tolist())
    '<bos> k21 v22 k31 v29 k9 v12 k10 v17 <div> k10'
    >>> task.word(int(docs.answer[0]))
    'v17'
    """

    pairs: Annotated[Count, Field(description="key–value pairs in a document")] = 32
    min_pairs: Annotated[Count | None, Field(description="fewest pairs, if they vary")] = None
    vocab: Annotated[VocabSize, Field(description="keys and values, half each")] = 8192
    queries: Annotated[Count, Field(description="queries in a document; above 1 is MQAR")] = 1
    query: Annotated[Asked, Field(description="what is shown; the other is recalled")] = "key"
    held_out: HeldOutShare = 0.0
    passes: Annotated[int, Field(ge=1, le=16, description="how often the pairs are read")] = 1
    slots: Annotated[Count | None, Field(description="places for queries, two tokens each")] = None
    gaps: Annotated[Exponent, Field(description="power a of a query's slot g: a·g^(a−1)")] = 1.0
    filler: Annotated[Filler, Field(description="symbols that fill the slots")] = 1

    constraints: ClassVar[tuple[Callable[..., str | None], ...]] = (
        _keys_suffice,
        _range_ascends,
        _pairs_suffice,
        _types_divide,
        _types_occur,
        _slots_suffice,
        _slots_are_there,
    )

    def __post_init__(self) -> None:
        settle(self)

    @cached_property
    def key(self) -> str:
        return spec_of("recall", self).key

    @property
    def vocab_size(self) -> int:
        return FIRST_SYMBOL + self.vocab + (self.filler if self.slots else 0)

    @property
    def max_len(self) -> int:
        asked = 2 * self.slots - 1 if self.slots else self.queries
        return 2 + 2 * self.pairs * self.passes + asked

    @property
    def _shape(self) -> tuple[int, int, int, int, bool, int]:
        fewest, reverse = self.min_pairs or self.pairs, self.query == "value"
        return self.vocab // 2, fewest, self.pairs, self.queries, reverse, self.passes

    @cached_property
    def _weights(self) -> Int64[ndarray, " slots"]:
        """The weights of the slots; as integers, so that every machine draws the same."""
        gap = np.arange(1, (self.slots or 0) + 1)
        share = gap ** (self.gaps - 1) / max(1, len(gap)) ** max(0, self.gaps - 1)
        return np.maximum(1, np.round(2**18 * share)).astype(np.int64)

    @cached_property
    def types(self) -> HeldOut:
        return HeldOut.draw(self.key, self.vocab // 2, self.held_out)

    def documents(self, seed: Seed, split: Split, start: int, stop: int) -> Documents:
        from mecheval.tasks.kernels.recall import draw_recall

        index = numbers(seed, split, start, stop)
        tokens = np.empty((len(index), self.max_len), np.int32)
        divider = np.empty(len(index), np.int32)
        asked, queries = np.empty((2, len(index), self.queries), np.int32)
        stream = np.uint64(key_of(self.key, seed, split))
        types = self.types.for_kernel(split)
        shape = (*self._shape, self._weights, self.filler)
        arrays = (tokens, divider, asked, queries)
        failed = draw_recall(stream, index, *shape, types, MAX_ATTEMPTS, *arrays)
        if failed >= 0:
            field = f"held_out={self.held_out} must leave {split} more to ask"
            raise InvalidInput(f"recall: {field}; {MAX_ATTEMPTS} draws gave no document")
        key_at, value_at = (2, 1) if self.query == "value" else (1, 2)
        first_key, first_value = 2 * asked[:, 0] + key_at, 2 * asked[:, 0] + value_at
        again = (divider - 1) // self.passes * (self.passes - 1)  # to the last reading
        roles = roles_of(first_key + again, first_value + again, queries[:, 0])
        roles["divider"] = divider
        if self.passes > 1:
            roles |= {"first_key": first_key, "first_value": first_value}
        answers = np.take_along_axis(tokens, 2 * asked + value_at, axis=1)
        return lay_out(index, tokens, roles, queries, answers)

    def reference(self, rng: Choices, split: Split) -> Document | None:
        """Attempt one document in plain Python; None if the draw is rejected."""
        shape = (*self._shape, self._weights.tolist(), self.filler)
        return recall_ref(rng, *shape, partial(self.types.asks, split))

    corrupt = corrupt

    def symbols(self, role: Role) -> range:
        keys = range(FIRST_SYMBOL, FIRST_SYMBOL + self.vocab // 2)
        values = range(keys.stop, keys.stop + self.vocab // 2)
        queried, recalled = (keys, values) if self.query == "key" else (values, keys)
        return recalled if role == "value" else queried

    def partners(self, docs: Documents, role: Role) -> Bool[ndarray, "n time"]:
        """Mark the tokens of the same class before the divider."""
        return symbols_before_divider(docs, self.symbols(role))

    def alike(self, docs: Documents, role: Role) -> Bool[ndarray, "n time"]:
        """Mark every reading of the pairs."""
        before = np.arange(docs.tokens.shape[1]) < docs.roles["divider"][:, None]
        return before & (role != "query")

    def answers(self, docs: Documents) -> Int32[ndarray, "n queries"]:
        return beside(docs, self.partners(docs, "key"), -1 if self.query == "value" else 1)

    def word(self, token: int) -> str:
        number = token - FIRST_SYMBOL
        if number < 0:
            return SPECIALS[token]
        if number >= self.vocab:
            return f"f{number - self.vocab}"
        return f"k{number}" if number < self.vocab // 2 else f"v{number - self.vocab // 2}"
