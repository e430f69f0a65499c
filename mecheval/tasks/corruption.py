"""Corrupt one token of each document and recompute the answers.

    resample    take another symbol of the same class, if possible one that the document lacks
    swap        exchange two tokens of a kind (for the query: ask another); the answer changes

The choice depends on (task, kind, role, seed, document) alone, so that every cell of a grid of
interventions sees the same corruption.
"""

from dataclasses import replace
from typing import Annotated, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int, Int32
from numpy import ndarray
from pydantic import Field

from mecheval.core.options import validate
from mecheval.tasks.documents import NO_ANSWER, Corrupted, Documents
from mecheval.tasks.philox import below, key_of

Kind = Literal["resample", "swap"]
Role = Literal["key", "value", "query"]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
_CELLS = 2**22  # at a time, of a table of documents by symbols


@runtime_checkable
class Corruptible(Protocol):
    """A task whose documents `corrupt` can change."""

    @property
    def key(self) -> str: ...

    def symbols(self, role: Role) -> range:
        """Return the ids that a role can have."""
        ...

    def partners(self, docs: Documents, role: Role) -> Bool[ndarray, "n time"]:
        """Mark the positions whose token can be exchanged with the role's."""
        ...

    def answers(self, docs: Documents) -> Int32[ndarray, "n queries"]:
        """Compute the right answers from the tokens; NO_ANSWER where there is none."""
        ...


def corrupt(
    task: Corruptible,
    docs: Documents,
    role: Role,
    seed: Seed,
    kind: Kind = "resample",
) -> Corrupted:
    """Corrupt the token at a role in every document; `docs` may be any of the task's documents."""
    validate(corrupt, {"role": role, "seed": seed, "kind": kind}, given=("task", "docs"))
    if not len(docs):
        return Corrupted(docs, np.zeros(0, bool))
    key = key_of(task.key, "corrupt", kind, role, seed)
    rows, position = np.arange(len(docs)), docs.roles[role]
    original = docs.tokens[rows, position]
    tokens = docs.tokens.copy()
    if kind == "resample":
        tokens[rows, position] = _resample(docs, original, task.symbols(role), key)
    else:
        different = docs.tokens != original[:, None]
        partner = _choose(task.partners(docs, role) & different, docs.index, key)
        swapped = np.flatnonzero(partner >= 0)
        tokens[swapped, position[swapped]] = docs.tokens[swapped, partner[swapped]]
        if role != "query":
            tokens[swapped, partner[swapped]] = original[swapped]
    twins = docs.with_tokens(tokens)
    twins = replace(twins, answers=task.answers(twins))
    usable = (tokens != docs.tokens).any(axis=1) & (twins.answer != docs.answer)
    if kind == "swap":  # the twin must have an answer of its own
        usable &= twins.answer != NO_ANSWER
    return Corrupted(twins, usable)


def _resample(
    docs: Documents,
    original: Int32[ndarray, " n"],
    symbols: range,
    key: int,
) -> Int32[ndarray, " n"]:
    """Draw a symbol that the document lacks, else any other one, else keep the only one."""
    fresh = original.copy()
    step = max(1, _CELLS // len(symbols))
    for start in range(0, len(docs), step):
        rows = slice(start, start + step)
        tokens, index = docs.tokens[rows], docs.index[rows]
        inside = (tokens >= symbols.start) & (tokens < symbols.stop)
        absent = np.ones((len(tokens), len(symbols)), bool)
        absent[np.nonzero(inside)[0], tokens[inside] - symbols.start] = False
        crowded = ~absent.any(axis=1)
        absent[crowded] = True
        absent[np.arange(len(tokens)), original[rows] - symbols.start] = False
        choice = _choose(absent, index, key)
        fresh[rows] = np.where(choice >= 0, choice + symbols.start, original[rows])
    return fresh


def _choose(
    candidates: Bool[ndarray, "n m"],
    index: Int[ndarray, " n"],
    key: int,
) -> Int[ndarray, " n"]:
    """Draw one candidate in each row, equally likely; −1 where there is none."""
    counts = candidates.sum(axis=1)
    nth = below(key, index, counts)
    place = (np.cumsum(candidates, axis=1) <= nth[:, None]).sum(axis=1)
    return np.where(counts > 0, place, -1)
