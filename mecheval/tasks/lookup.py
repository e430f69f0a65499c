"""Answers read from the tokens: what stands beside the last occurrence of what is asked."""

import numpy as np
from jaxtyping import Bool, Int32
from numpy import ndarray

from mecheval.tasks.documents import NO_ANSWER, Documents


def one_first(first: Int32[ndarray, " n"], count: int) -> Int32[ndarray, "n count"]:
    """Return in each row 0 … count−1 in order, but one of them before all others."""
    order = np.tile(np.arange(count, dtype=np.int32), (len(first), 1))
    order[:, 1:] -= order[:, 1:] <= first[:, None]
    order[:, :1] = first[:, None]
    return order


def last_match(marked: Bool[ndarray, "n time"]) -> tuple[ndarray, ndarray]:
    """Return the last marked position of each row, and the rows that have one."""
    last = marked.shape[1] - 1 - np.argmax(marked[:, ::-1], axis=1)
    return last, np.flatnonzero(marked.any(axis=1))


def beside(
    docs: Documents, among: Bool[ndarray, "n time"], offset: int = 1
) -> Int32[ndarray, "n queries"]:
    """Return for each query the token beside the last equal one of those marked."""
    asked = np.take_along_axis(docs.tokens, docs.queries, axis=1)
    answers = np.full_like(asked, NO_ANSWER)
    for j in range(asked.shape[1]):
        last, rows = last_match(among & (docs.tokens == asked[:, j, None]))
        answers[rows, j] = docs.tokens[rows, last[rows] + offset]
    return answers


def symbols_before_divider(docs: Documents, symbols: range) -> Bool[ndarray, "n time"]:
    """Mark the tokens of a class before the divider."""
    before = np.arange(docs.tokens.shape[1]) < docs.roles["divider"][:, None]
    return before & (docs.tokens >= symbols.start) & (docs.tokens < symbols.stop)
