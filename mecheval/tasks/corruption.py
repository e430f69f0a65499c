"""One token of each document made wrong, the answers worked out anew.

    resample    another symbol of the same class, if possible one that does not occur in the document
    swap        two of a kind change places (for the query: another one is asked), so that another answer is right

The choice depends on (task, kind, role, seed, document) and on nothing else: every cell of a grid of interventions
sees the same.
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
    """What a task says about its documents for them to be corrupted."""

    @property
    def key(self) -> str: ...

    def symbols(self, role: Role) -> range:
        """The ids that a role can have."""
        ...

    def partners(self, docs: Documents, role: Role) -> Bool[ndarray, "n time"]:
        """The positions whose token the role's can be exchanged for."""
        ...

    def answers(self, docs: Documents) -> Int32[ndarray, "n queries"]:
        """The right answers, worked out from the tokens; NO_ANSWER where there is none."""
        ...


def corrupt(task: Corruptible, docs: Documents, role: Role, seed: Seed, kind: Kind = "resample") -> Corrupted:
    validate(corrupt, {"role": role, "seed": seed, "kind": kind}, given=("task", "docs"))
    if not len(docs):
        return Corrupted(docs, np.zeros(0, bool))
    key = key_of(task.key, "corrupt", kind, role, seed)
    rows, position = np.arange(len(docs)), docs.roles[role]
    original = docs.tokens[rows, position]
    tokens = docs.tokens.copy()
    if kind == "resample":
        tokens[rows, position] = _resampled(docs, original, task.symbols(role), key)
    else:
        different = docs.tokens != original[:, None]
        partner = _choose(task.partners(docs, role) & different, docs.index, key)
        found = np.flatnonzero(partner >= 0)
        tokens[found, position[found]] = docs.tokens[found, partner[found]]
        if role != "query":
            tokens[found, partner[found]] = original[found]
    twins = docs.with_tokens(tokens)
    twins = replace(twins, answers=task.answers(twins))
    usable = (tokens != docs.tokens).any(axis=1) & (twins.answer != docs.answer)
    if kind == "swap":  # its point is that another answer is right
        usable &= twins.answer != NO_ANSWER
    return Corrupted(twins, usable)


def _resampled(docs: Documents, original: Int32[ndarray, " n"], symbols: range, key: int) -> Int32[ndarray, " n"]:
    """A symbol that the document lacks, else any other one, else (there is but one symbol) the same."""
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


def _choose(candidates: Bool[ndarray, "n m"], index: Int[ndarray, " n"], key: int) -> Int[ndarray, " n"]:
    """One candidate of each row, equally likely; −1 where there is none."""
    counts = candidates.sum(axis=1)
    nth = below(key, index, counts)
    place = (np.cumsum(candidates, axis=1) <= nth[:, None]).sum(axis=1)
    return np.where(counts > 0, place, -1)
