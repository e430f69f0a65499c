"""A task in one file: which symbol stood before the one that is asked about?

<bos> a b c d <div> c → b

mecheval check examples/task.py:Before
mecheval sample examples/task.py:Before:length=4 -n 2
mecheval run examples/task.py:Before attention train.steps=50 --out runs
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy import ndarray
from pydantic import Field

from mecheval import (
    BOS,
    DIVIDER,
    FIRST_SYMBOL,
    NO_ANSWER,
    SPECIALS,
    SPLITS,
    Corrupted,
    Documents,
    Kind,
    Role,
    Split,
    corrupt,
    roles_of,
)


@dataclass(frozen=True, kw_only=True)
class Before:
    """Recall the symbol that stood before the one asked about."""

    alphabet: Annotated[int, Field(ge=4, le=4096, description="how many symbols there are")] = 32
    length: Annotated[
        int, Field(ge=2, le=512, description="symbols of a document, all different")
    ] = 8

    def __post_init__(self) -> None:
        if self.length >= self.alphabet:
            raise ValueError(f"length={self.length} must be below alphabet={self.alphabet}")

    @property
    def vocab_size(self) -> int:
        return FIRST_SYMBOL + self.alphabet

    @property
    def max_len(self) -> int:
        return self.length + 3

    @property
    def key(self) -> str:
        return f"before:alphabet={self.alphabet},length={self.length}"

    def documents(self, seed: int, split: Split, start: int, stop: int) -> Documents:
        # document i depends on (seed, split, i) alone: a generator for each
        streams = [
            np.random.default_rng([seed, SPLITS.index(split), i]) for i in range(start, stop)
        ]
        shown = [FIRST_SYMBOL + rng.permutation(self.alphabet)[: self.length] for rng in streams]
        symbols = np.array(shown, np.int32).reshape(-1, self.length)
        at = np.array(
            [rng.integers(2, self.length + 1) for rng in streams], np.int32
        )  # <bos> is at 0
        one = np.ones((len(streams), 1), np.int32)
        asked = np.take_along_axis(symbols, at[:, None] - 1, axis=1)
        tokens = np.concatenate([BOS * one, symbols, DIVIDER * one, asked], axis=1)
        last = (self.max_len - 1) * one
        answers = np.take_along_axis(symbols, at[:, None] - 2, axis=1)
        roles = roles_of(key=at, value=at - 1, query=last[:, 0])
        return Documents(
            np.arange(start, stop), tokens.ravel(), last[:, 0] + 1, roles, last, answers
        )

    def corrupt(
        self, docs: Documents, role: Role, seed: int = 0, kind: Kind = "resample"
    ) -> Corrupted:
        return corrupt(self, docs, role, seed, kind)  # by what the three functions below say

    def symbols(self, role: Role) -> range:
        return range(FIRST_SYMBOL, self.vocab_size)

    def partners(self, docs: Documents, role: Role) -> ndarray:
        position = np.arange(self.max_len)
        return np.broadcast_to((position >= 1) & (position <= self.length), docs.tokens.shape)

    def answers(self, docs: Documents) -> ndarray:
        found = docs.tokens[:, 2:-2] == docs.tokens[:, -1:]  # nothing is before the first symbol
        before = docs.tokens[np.arange(len(docs)), 1 + found.argmax(axis=1)]
        return np.where(found.any(axis=1), before, NO_ANSWER).astype(np.int32)[:, None]

    def word(self, token: int) -> str:
        return SPECIALS.get(token, f"s{token - FIRST_SYMBOL}")
