"""Corrupt one token of each document and recompute the answers.

    resample    take another symbol of the same class, if possible one that the document lacks
    swap        exchange two tokens of a kind (for a role with `query` in its name: ask another);
                the answer changes

The choice depends on (task, kind, role, seed, document) alone, so that every cell of a grid of
interventions sees the same corruption. Other kinds are registered by name: by
`@register_corruption("name")` or by an entry point of the group `mecheval.corruptions`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int, Int32
from numpy import ndarray

from mecheval.core.errors import InvalidInput
from mecheval.core.options import Field, validate
from mecheval.core.registry import Registry
from mecheval.tasks.check_twins import check_twins
from mecheval.tasks.documents import NO_ANSWER, Corrupted, Documents
from mecheval.tasks.philox import below, key_of
from mecheval.tasks.variables import Role as Role
from mecheval.tasks.variables import check_role

Kind = str  # the name of a registered corruption
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
Corruption = Callable[[Any, Documents, Role, int], Corrupted]
BUILT_IN = ("resample", "swap")
_CELLS = 2**22  # at a time, of a table of documents by symbols

corruptions = Registry("corruption", given=("task", "docs", "role", "seed"))


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


@runtime_checkable
class _Corrupts(Protocol):
    def corrupt(
        self, docs: Documents, role: Role, seed: int = 0, kind: Kind = "resample"
    ) -> Corrupted: ...


def register_corruption(name: str) -> Callable[[Corruption], Corruption]:
    """Return a decorator that registers a corruption by a name.

    It is then reachable wherever a `kind` is given: `corrupt`, `interchange`, `Run.intervene`,
    `sample` and `mecheval intervene --kind NAME --plugin file.py`.

    Parameters
    ----------
    name
        The name; one that is taken is refused.

    Returns
    -------
    A decorator for a function of (task, docs, role, seed) that returns `Corrupted`: the same
    documents with other tokens and their new answers, and which of them are usable.
    `replace_tokens` builds it from a table of tokens. It must treat each document independently.

    Examples
    --------
    >>> import numpy as np
    >>> from mecheval import Recall, corrupt, register_corruption, replace_tokens
    >>> @register_corruption("neighbour")
    ... def neighbour(task, docs, role, seed):
    ...     "Take the next symbol of the same class."
    ...     tokens, at = docs.tokens.copy(), docs.roles[role][:, None]
    ...     symbols = task.symbols(role)
    ...     following = (docs.at(role) + 1 - symbols.start) % len(symbols) + symbols.start
    ...     np.put_along_axis(tokens, at, following[:, None], axis=1)
    ...     return replace_tokens(task, docs, tokens)
    >>> task = Recall(pairs=4, vocab=64)
    >>> docs = task.documents(0, "test", 0, 3)
    >>> twins = corrupt(task, docs, "key", kind="neighbour")
    >>> (twins.documents.at("key") - docs.at("key")).tolist()
    [1, 1, 1]
    """
    return corruptions.register(name)


def corrupt(
    task: Any,
    docs: Documents,
    role: Role,
    seed: Seed = 0,
    kind: Kind = "resample",
) -> Corrupted:
    """Corrupt the token at a role in every document, and recompute the answers.

    Parameters
    ----------
    task
        The task that drew the documents; the built-in kinds need one that is `Corruptible`.
    docs
        Any of its documents.
    role
        The role whose token is changed: `key`, `value`, `query` or another variable of the task.
    seed
        Draws another corruption for another seed.
    kind
        A registered corruption: `resample`, `swap` or one of yours.

    Returns
    -------
    The twins, and which of them are usable: those whose answer has changed.

    Examples
    --------
    >>> from mecheval import Recall, corrupt
    >>> task = Recall(pairs=4, vocab=64)
    >>> docs = task.documents(0, "test", 0, 100)
    >>> twins = corrupt(task, docs, "key")
    >>> int(twins.usable.sum()), bool((twins.documents.at("key") == docs.at("key")).any())
    (100, False)
    """
    check_role(task, role)
    validate(corrupt, {"role": role, "seed": seed, "kind": kind}, given=("task", "docs"))
    if problem := check_kind(kind):
        raise InvalidInput(problem)
    if not len(docs):
        return Corrupted(docs, np.zeros(0, bool))
    if getattr(task, "corrupts_any_kind", False):  # in words: its symbols are corrupted
        return task.corrupt(docs, role, seed, kind)
    function: Corruption = corruptions.get(kind)
    twins = function(task, docs, role, seed)
    if not function.__module__.startswith("mecheval."):
        alone = function(task, docs[:1], role, seed)
        check_twins(f"corruption {kind!r}", task.vocab_size, docs, twins, alone)
    return twins


def corrupt_by_kind(
    task: _Corrupts, docs: Documents, role: Role, seed: int, kind: Kind
) -> Corrupted:
    """Corrupt documents of any task: its own `corrupt` knows the built-in kinds.

    A task in words passes every kind on to the task of its symbols.
    """
    check_role(task, role)
    if kind in BUILT_IN or getattr(task, "corrupts_any_kind", False):
        return task.corrupt(docs, role, seed, kind)
    return corrupt(task, docs, role, seed, kind)


def check_kind(kind: Kind) -> str | None:
    """Return what is wrong with the name of a corruption, if anything is."""
    names = corruptions.names()
    hint = "; '--plugin file.py' registers yours"
    return None if kind in names else f"kind={kind} must be one of {', '.join(names)}{hint}"


def replace_tokens(task: Any, docs: Documents, tokens: Int32[ndarray, "n time"]) -> Corrupted:
    """Return the documents with other tokens and the answers that these give.

    Parameters
    ----------
    task
        The task that drew the documents; its `answers` recomputes the answers.
    docs
        The documents.
    tokens
        A table like `docs.tokens`.

    Returns
    -------
    The twins. Those are usable that have other tokens and another answer, or none.

    Examples
    --------
    >>> from mecheval import Recall, replace_tokens
    >>> task = Recall(pairs=4, vocab=64)
    >>> docs = task.documents(0, "test", 0, 5)
    >>> replace_tokens(task, docs, docs.tokens.copy()).usable.tolist()  # nothing has changed
    [False, False, False, False, False]
    """
    if not hasattr(task, "answers"):
        problem = f"{type(task).__name__} must have answers(docs) to recompute them"
        raise InvalidInput(f"{problem}; or return Corrupted(documents, usable) of your own")
    twins = docs.with_tokens(tokens)
    twins = replace(twins, answers=task.answers(twins))
    usable = (tokens != docs.tokens).any(axis=1) & (twins.answer != docs.answer)
    return Corrupted(twins, usable)


@corruptions.register("resample")
def resample(task: Corruptible, docs: Documents, role: Role, seed: int) -> Corrupted:
    """Take another symbol of the same class, if possible one that the document lacks."""
    key = key_of(task.key, "corrupt", "resample", role, seed)
    original = docs.at(role)
    fresh = _resample(docs, original, task.symbols(role), key)
    same = changes_with(task, docs, role)
    return replace_tokens(task, docs, np.where(same, fresh[:, None], docs.tokens))


@corruptions.register("swap")
def swap(task: Corruptible, docs: Documents, role: Role, seed: int) -> Corrupted:
    """Exchange two tokens of a class (for the query: ask another); the answer changes."""
    key = key_of(task.key, "corrupt", "swap", role, seed)
    position, original, tokens = docs.roles[role], docs.at(role), docs.tokens
    different = tokens != original[:, None]
    partner = _choose(task.partners(docs, role) & different, docs.index, key)
    found = (partner >= 0)[:, None]
    other = np.take_along_axis(tokens, np.maximum(partner, 0)[:, None], axis=1)
    twins = np.where(found & changes_with(task, docs, role), other, tokens)
    if "query" not in role:
        there = changes_with(task, docs, role, np.where(partner >= 0, partner, position))
        twins = np.where(found & there, original[:, None], twins)
    corrupted = replace_tokens(task, docs, twins)
    # the twin must have an answer of its own
    return replace(corrupted, usable=corrupted.usable & (corrupted.documents.answer != NO_ANSWER))


def changes_with(
    task: Any, docs: Documents, role: Role, position: Int[ndarray, " n"] | None = None
) -> Bool[ndarray, "n time"]:
    """Mark the position (by default the role's) and, if the task reads a token more than once,
    the equal tokens that its `alike` marks."""
    position = docs.roles[role] if position is None else position
    itself = np.arange(docs.tokens.shape[1]) == position[:, None]
    if not hasattr(task, "alike"):
        return itself
    there = np.take_along_axis(docs.tokens, position[:, None].astype(np.int64), axis=1)
    return itself | (task.alike(docs, role) & (docs.tokens == there))


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
