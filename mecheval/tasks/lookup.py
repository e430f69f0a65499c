"""Answers read from the tokens: what stands beside the last occurrence of what is asked."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Int32, Int64
from numpy import ndarray

from mecheval.tasks.corruption import Corruptible
from mecheval.tasks.documents import NO_ANSWER, Documents


def lay_out(
    task: Corruptible,
    index: Int64[ndarray, " n"],
    tokens: Int32[ndarray, "n time"],
    roles: Mapping[str, Int32[ndarray, " n"]],
    queries: Int32[ndarray, "n queries"],
) -> Documents:
    """Return the documents in the rows of a table, with the answers that the task reads there."""
    lengths = queries.max(axis=1, initial=0) + 1
    if tokens.shape[1] * len(index) == lengths.sum():
        flat = tokens.ravel()
    else:
        flat = tokens[np.arange(tokens.shape[1]) < lengths[:, None]]
    docs = Documents(index, flat, lengths, roles, queries, queries)
    return replace(docs, answers=task.answers(docs)) if len(docs) else docs


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
