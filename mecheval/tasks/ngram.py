"""Statistics in context: what has most often followed the last symbols of a Markov chain.

BOS s₁ s₂ … s_T → the most frequent successor of s_{T−order+1} … s_T

Every document has a random transition table of its own, so that there is nothing to memorise. The
most frequent successor is what an observer who knows only the document holds most likely.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np
from jaxtyping import Bool, Int32
from numpy import ndarray

from mecheval.core.errors import InvalidInput
from mecheval.core.options import Field, settle
from mecheval.tasks.corruption import Role, Seed, corrupt
from mecheval.tasks.documents import (
    BOS,
    FIRST_SYMBOL,
    NO_ANSWER,
    SPECIALS,
    Documents,
    lay_out,
)
from mecheval.tasks.philox import key_of
from mecheval.tasks.probe import acceptance
from mecheval.tasks.reference import Choices, PlainDocument
from mecheval.tasks.splits import Split
from mecheval.tasks.task import MAX_ATTEMPTS, numbers, spec_of

LEAST = 2  # readings of the last context: one alone would be a look-up
MAX_CONTEXTS = 2**15


def _table_fits(vocab: int, order: int) -> str | None:
    if vocab**order > MAX_CONTEXTS:
        return f"vocab={vocab} has more than {MAX_CONTEXTS} contexts of order={order}"
    return None


def _context_returns(length: int, order: int) -> str | None:
    if length < order + LEAST + 1:
        return f"length={length} must be at least {order + LEAST + 1} for order={order}"
    return None


@dataclass(frozen=True, kw_only=True)
class Ngram:
    """Statistics in context: a Markov chain; answer what has most often followed its last symbols.

    Parameters
    ----------
    order
        Symbols that decide what comes next.
    vocab
        Symbols of the chain.
    length
        Symbols of a document.

    Examples
    --------
    >>> from mecheval import build_task
    >>> task = build_task("ngram:order=1,vocab=3,length=24")
    >>> docs = task.documents(0, "test", 0, 100)
    >>> bool((docs.at("value") == docs.answer).all())
    True
    """

    order: Annotated[int, Field(ge=1, le=3, description="symbols that decide the next")] = 1
    vocab: Annotated[int, Field(ge=2, le=2**8, description="symbols of the chain")] = 4
    length: Annotated[int, Field(ge=4, le=2**10, description="symbols of a document")] = 100

    constraints: ClassVar = (_table_fits, _context_returns)
    variables: ClassVar[tuple[Role, ...]] = ("key", "value", "query")

    def __post_init__(self) -> None:
        settle(self)
        if acceptance(self) < 1 / 100:
            raise self._too_short()

    @cached_property
    def key(self) -> str:
        return spec_of("ngram", self).key

    @property
    def vocab_size(self) -> int:
        return FIRST_SYMBOL + self.vocab

    @property
    def max_len(self) -> int:
        return 1 + self.length

    def documents(self, seed: Seed, split: Split, start: int, stop: int) -> Documents:
        from mecheval.tasks.kernels.ngram import draw_ngram

        index = numbers(seed, split, start, stop)
        tokens = np.empty((len(index), self.max_len), np.int32)
        answers, value = np.empty((2, len(index)), np.int32)
        stream = np.uint64(key_of(self.key, seed, split))
        shape = (self.vocab, self.order, LEAST, MAX_ATTEMPTS)
        if draw_ngram(stream, index, *shape, tokens, answers, value) >= 0:
            raise self._too_short()
        query = np.full(len(index), self.length, np.int32)
        roles = {"bos": np.zeros_like(query), "key": value - 1, "value": value}
        roles |= {"next_key": value + 1, "query": query}
        return lay_out(index, tokens, roles, query[:, None], answers[:, None])

    def reference(self, rng: Choices, split: Split) -> PlainDocument | None:
        """Attempt one document in plain Python; None if no successor is the most frequent."""
        return ngram_ref(rng, self.order, self.vocab, self.length)

    corrupt = corrupt

    def symbols(self, role: Role) -> range:
        return range(FIRST_SYMBOL, self.vocab_size)

    def partners(self, docs: Documents, role: Role) -> Bool[ndarray, "n time"]:
        """Mark every symbol but the last ones, which are asked about."""
        place = np.arange(docs.tokens.shape[1])
        return (docs.tokens >= FIRST_SYMBOL) & (place <= self.length - self.order)

    def answers(self, docs: Documents) -> Int32[ndarray, "n queries"]:
        """Return the most frequent successor; of several, the one read last."""
        tokens, width = docs.tokens, docs.tokens.shape[1]
        follows = np.tile(np.arange(width) > self.order, (len(docs), 1))
        for back in range(1, self.order + 1):
            follows &= np.roll(tokens, back, axis=1) == tokens[:, width - back, None]
        score = np.zeros((len(docs), self.vocab_size))
        rows, places = np.nonzero(follows)
        np.add.at(score, (rows, tokens[rows, places]), width)
        last = np.zeros_like(score)
        np.maximum.at(last, (rows, tokens[rows, places]), places)
        best = np.argmax(score + last, axis=1)
        return np.where(follows.any(axis=1), best, NO_ANSWER).astype(np.int32)[:, None]

    def word(self, token: int) -> str:
        return SPECIALS[token] if token < FIRST_SYMBOL else f"s{token - FIRST_SYMBOL}"

    def _too_short(self) -> InvalidInput:
        problem = f"in too few chains of length={self.length} the last {self.order} of"
        advice = "use a smaller vocab or order, or a longer length"
        return InvalidInput(f"{problem} vocab={self.vocab} symbols return; {advice}")


def ngram_ref(rng: Choices, order: int, symbols: int, length: int) -> PlainDocument | None:
    """Draw BOS and a chain; None if its last symbols have no successor that is most frequent."""
    chain = chain_ref(rng, order, symbols, length)
    last = chain[-order:]
    follows = [i for i in range(order, length) if chain[i - order : i] == last]
    counts = [sum(chain[i] == symbol for i in follows) for symbol in range(symbols)]
    if len(follows) < LEAST or counts.count(max(counts)) > 1:
        return None
    answer = counts.index(max(counts))
    value = 1 + max(i for i in follows if chain[i] == answer and i < length - 1)
    roles = {"key": value - 1, "value": value, "next_key": value + 1}
    tokens = [BOS, *(FIRST_SYMBOL + symbol for symbol in chain)]
    return PlainDocument(tokens, roles, [length], [FIRST_SYMBOL + answer])


def chain_ref(rng: Choices, order: int, symbols: int, length: int) -> list[int]:
    """Draw a chain with a transition table of its own."""
    table: dict[tuple[int, ...], list[int]] = {}
    chain = [rng.below(symbols) for _ in range(order)]
    while len(chain) < length:
        context = tuple(chain[-order:])
        if context not in table:  # spacings of uniform words are a uniform Dirichlet
            table[context] = sorted(rng.below(2**32) for _ in range(symbols - 1))
        chain.append(rng.pick(table[context]))
    return chain
