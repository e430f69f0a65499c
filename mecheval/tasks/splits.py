"""Which (query, answer) types are kept for test: for every query symbol, the same number of answer symbols.

Of n query and n answer symbols in random order, a type is held out when the answer lies less than `size` places after
the query, round the circle. So each symbol takes part in exactly `size` held-out types, and a document in which every
pair is held out, or none is, exists as long as 0 < size < n.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int32
from numpy import ndarray

from mecheval.tasks.philox import key_of, permutation

Split = Literal["train", "dev", "test"]


@dataclass(frozen=True)
class HeldOut:
    """`share` of the types is asked about in test, and only there."""

    query_place: Int32[ndarray, " n"]
    answer_place: Int32[ndarray, " n"]
    size: int

    @classmethod
    def draw(cls, task_key: str, symbols: int, share: float) -> "HeldOut":
        size = size_of(symbols, share)
        n = symbols if size else 0  # nobody asks
        query, answer = (permutation(key_of(task_key, "held out", side), n) for side in ("query", "answer"))
        return cls(query.astype(np.int32), answer.astype(np.int32), size)

    def __contains__(self, pair: tuple[int, int]) -> bool:
        if not self.size:
            return False
        query, answer = pair
        distance = int(self.answer_place[answer]) - int(self.query_place[query])
        return distance % len(self.query_place) < self.size

    def asks(self, split: Split, query: int, answer: int) -> bool:
        """Whether a split may ask about this type."""
        return not self.size or ((query, answer) in self) == (split == "test")

    def for_kernel(self, split: Split) -> tuple[ndarray, ndarray, int, int]:
        """… and side: 1 to ask only about held-out types, −1 only about the others, 0 about any."""
        side = 0 if not self.size else 1 if split == "test" else -1
        return self.query_place, self.answer_place, self.size, side


def share_complaint(share: float, symbols: int, what: str) -> str | None:
    """Why this share of the types cannot be kept apart, as an error line; None if it can."""
    if share == 0 or 0 < size_of(symbols, share) < symbols:
        return None
    limits = f" or about {1 / symbols:.2g} to {1 - 1 / symbols:.2g}" if symbols > 1 else ""
    return f"held_out={share} must be 0{limits}, to leave some of the {symbols} {what} on each side"


def size_of(symbols: int, share: float) -> int:
    return round(symbols * share)
