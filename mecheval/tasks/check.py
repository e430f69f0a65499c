"""Check that a task keeps its contract; a task that does not would make every number false."""

from collections.abc import Callable, Iterator
from typing import cast

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray

from mecheval.core.errors import CheckFailed
from mecheval.tasks.corruption import BUILT_IN, Kind, Role
from mecheval.tasks.dataset_stats import texts
from mecheval.tasks.documents import NO_ANSWER, ROLES, Documents
from mecheval.tasks.task import SPLITS, Task
from mecheval.tasks.variables import variables_of

DRAWN = 256


def check_task(task: Task, documents: int = DRAWN) -> None:
    """Raise CheckFailed with every rule that the task breaks.

    Parameters
    ----------
    task
        The task.
    documents
        Number of documents that are drawn.

    Returns
    -------
    None
        CheckFailed is raised with every rule that fails.

    Examples
    --------
    >>> from mecheval import Recall, check_task
    >>> check_task(Recall(pairs=2, vocab=8), documents=16)
    """
    failures = []
    for check in (
        _draws_any_block_alike,
        _keeps_its_shapes,
        _keeps_its_roles,
        _separates_splits_and_seeds,
        _corrupts_honestly,
    ):
        try:
            failures += list(check(task, documents))
        except Exception as error:  # third-party code may raise anything
            failures.append(f"{_words(check)}: {type(error).__name__}: {error}")
    if failures:
        raise CheckFailed(str(type(task).__name__), failures)


def _draws_any_block_alike(task: Task, n: int) -> Iterator[str]:
    whole = texts(task.documents(0, "test", 0, n))
    backwards = [texts(task.documents(0, "test", i, i + 1))[0] for i in reversed(range(n))][::-1]
    differing = [i for i in range(n) if whole[i] != backwards[i]]
    if differing:
        more = f"(and {len(differing) - 1} more)"
        yield f"document {differing[0]} drawn alone differs from the one in a block {more}"
    middle = task.documents(0, "test", n // 3, n)
    if texts(middle) != whole[n // 3 :]:
        yield f"documents {n // 3} to {n} differ when the block starts there"
    if middle.index.tolist() != list(range(n // 3, n)):
        yield "index must number the documents from start to stop"


def _keeps_its_shapes(task: Task, n: int) -> Iterator[str]:
    for split in SPLITS:
        docs = task.documents(0, split, 0, n)
        if len(docs) != n:
            yield f"{split}: {n} documents were requested and {len(docs)} drawn"
        if docs.lengths.max() > task.max_len:
            yield f"{split}: a document has {docs.lengths.max()} tokens, max_len is {task.max_len}"
        for name, ids in (("tokens", docs.flat), ("answers", docs.answers)):
            low, high = ids.min(), ids.max()
            if low < 0 or high >= task.vocab_size:
                yield f"{split}: {name} must be below vocab_size={task.vocab_size}: {low} … {high}"
        if not all(task.word(int(token)) for token in np.unique(docs.flat)):
            yield f"{split}: word() must name every token"


def _keeps_its_roles(task: Task, n: int) -> Iterator[str]:
    docs = task.documents(0, "test", 0, n)
    own = getattr(task, "variables", None)  # such a task has roles of its own
    missing = set(ROLES if own is None else ("bos", "query", *own)) - docs.roles.keys()
    if missing:
        yield f"roles must include {', '.join(sorted(missing))}"
        return
    for role, position in docs.roles.items():
        if position.min() < 0 or (position >= docs.lengths).any():
            yield f"role {role} must point into the document"
            return
    if (docs.queries[:, 0] != docs.roles["query"]).any():
        yield "the role query must be the first of queries"
    if (docs.queries.max(axis=1) != docs.lengths - 1).any():
        yield "no token may follow the last query: no model reads it"
    if "value" in docs.roles and (docs.at("value") != docs.answer).any():
        yield "the token at the role value must be the answer"
    if "key" in docs.roles and (docs.at("key") != docs.at("query")).any():
        yield "the token at the role key must be the one asked about"


def _separates_splits_and_seeds(task: Task, n: int) -> Iterator[str]:
    train = texts(task.documents(0, "train", 0, n))
    if texts(task.documents(0, "dev", 0, n)) == train:
        yield "dev draws the same documents as train"
    if texts(task.documents(1, "train", 0, n)) == train:
        yield "another seed draws the same documents as train"


def _corrupts_honestly(task: Task, n: int) -> Iterator[str]:
    docs = task.documents(0, "test", 0, n)
    for kind in BUILT_IN:
        for role in variables_of(task):
            for failure in _broken_by(task, docs, role, kind):
                yield f"{kind} of {role}: {failure}"


def _broken_by(task: Task, docs: Documents, role: Role, kind: Kind) -> Iterator[str]:
    twins = task.corrupt(docs, role, 0, kind)
    if texts(task.corrupt(docs[::-1], role, 0, kind).documents[::-1]) != texts(twins.documents):
        yield "the corruption of a document depends on the others"
    if (twins.documents.lengths != docs.lengths).any():
        yield "a corruption must not change the length"
        return
    changed = twins.documents.tokens != docs.tokens
    most = 1 if kind == "resample" or "query" in role else 2
    if (_changes(task, docs, changed) > most).any():
        yield f"at most {most} tokens may change"
    at_role = changed[np.arange(len(docs)), docs.roles[role]]
    if (changed.any(axis=1) & ~at_role).any():
        yield "the token at the role must change, if any does"
    survived = twins.documents.answer == docs.answer
    if (twins.usable & (survived | ~at_role)).any():
        yield "a document whose answer survived must not be usable"
    if kind == "swap" and (twins.documents.answer[twins.usable] == NO_ANSWER).any():
        yield "a swap must leave an answer"


def _changes(task: Task, docs: Documents, changed: Bool[ndarray, "n time"]) -> Int64[ndarray, " n"]:
    """Count changed tokens; for a task that reads pairs again, equal tokens count once."""
    if not hasattr(task, "alike"):
        return changed.sum(axis=1)
    ordered = np.sort(np.where(changed, docs.tokens, -1), axis=1)
    new = (ordered[:, 1:] != ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    return new.sum(axis=1) + (ordered[:, 0] >= 0)


def _words(check: Callable[..., object]) -> str:
    return cast(str, getattr(check, "__name__", "check")).strip("_").replace("_", " ")
