"""Splits, and the (query, answer) types that are held out for test.

Of n query and n answer symbols in random order, a type is held out when the answer lies less than
`size` places after the query, around the circle. So each symbol takes part in exactly `size`
held-out types, and a document in which every pair is held out, or none is, exists as long as
0 < size < n.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Int32
from numpy import ndarray

from mecheval.core.options import Field
from mecheval.tasks.philox import key_of, permutation

Split = Literal["train", "dev", "test"]
HeldOutShare = Annotated[
    float, Field(ge=0, lt=1, description="share of (query, answer) types asked only in test")
]


@dataclass(frozen=True)
class HeldOut:
    """The types that only test asks about: `size` answers of each query symbol."""

    query_place: Int32[ndarray, " n"]
    answer_place: Int32[ndarray, " n"]
    size: int

    @classmethod
    def draw(cls, task_key: str, symbols: int, share: float) -> "HeldOut":
        """Hold out a share of the types of n query and n answer symbols."""
        size = size_of(symbols, share)
        n = symbols if size else 0  # without held-out types no order is needed
        query = permutation(key_of(task_key, "held out", "query"), n)
        answer = permutation(key_of(task_key, "held out", "answer"), n)
        return cls(query.astype(np.int32), answer.astype(np.int32), size)

    def __contains__(self, pair: tuple[int, int]) -> bool:
        if not self.size:
            return False
        query, answer = pair
        distance = int(self.answer_place[answer]) - int(self.query_place[query])
        return distance % len(self.query_place) < self.size

    def asks(self, split: Split, query: int, answer: int) -> bool:
        """Return True if a split may ask about this type."""
        return not self.size or ((query, answer) in self) == (split == "test")

    def for_kernel(self, split: Split) -> tuple[ndarray, ndarray, int, int]:
        """Return the arrays, the size, and 1 (only held-out types), −1 (only others) or 0."""
        side = 0 if not self.size else 1 if split == "test" else -1
        return self.query_place, self.answer_place, self.size, side


def share_complaint(share: float, symbols: int, what: str) -> str | None:
    """Return an error line if this share of the types cannot be held out, else None."""
    if share == 0 or 0 < size_of(symbols, share) < symbols:
        return None
    limits = f" or about {1 / symbols:.2g} to {1 - 1 / symbols:.2g}" if symbols > 1 else ""
    reason = f"to leave some of the {symbols} {what} on each side"
    return f"held_out={share} must be 0{limits}, {reason}"


def size_of(symbols: int, share: float) -> int:
    return round(symbols * share)
