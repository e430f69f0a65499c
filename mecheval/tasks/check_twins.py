"""Check what a third-party corruption returns: false twins would make every number false."""

import numpy as np

from mecheval.core.errors import CheckFailed
from mecheval.tasks.documents import NO_ANSWER, Corrupted, Documents


def check_twins(name: str, vocab_size: int, docs: Documents, twins: object, alone: object) -> None:
    """Raise CheckFailed if a third-party corruption changed more than tokens and answers.

    `alone` is what it returns for the first document without the others.
    """
    if not isinstance(twins, Corrupted) or not isinstance(alone, Corrupted):
        problem = f"must return Corrupted(documents, usable); it returned {type(twins).__name__}"
        raise CheckFailed(name, [problem])
    failures = _changed_fields(docs, twins) or [
        *_outside_vocabulary(twins.documents, vocab_size),
        *_false_twins(docs, twins, alone),
    ]
    if failures:
        raise CheckFailed(name, failures)


def _changed_fields(docs: Documents, twins: Corrupted) -> list[str]:
    new, failures = twins.documents, []
    for field in ("index", "lengths", "queries"):
        if not np.array_equal(getattr(new, field), getattr(docs, field)):
            failures.append(f"must not change the {field} of documents")
    if any(not np.array_equal(new.roles.get(role, ()), at) for role, at in docs.roles.items()):
        failures.append("must not change the roles of documents")
    if new.answers.shape != docs.answers.shape or new.flat.shape != docs.flat.shape:
        failures.append("must return as many tokens and answers as it was given")
    if twins.usable.shape != (len(docs),) or twins.usable.dtype != bool:
        failures.append("must return usable as one boolean for each document")
    return failures


def _outside_vocabulary(new: Documents, vocab_size: int) -> list[str]:
    failures = []
    for what, ids, lowest in (("tokens", new.flat, 0), ("answers", new.answers, NO_ANSWER)):
        if ids.min() < lowest or ids.max() >= vocab_size:
            limits = f"from {lowest} and below vocab_size={vocab_size}"
            failures.append(f"must return {what} {limits}: {ids.min()} … {ids.max()}")
    return failures


def _false_twins(docs: Documents, twins: Corrupted, alone: Corrupted) -> list[str]:
    failures, new = [], twins.documents
    changed = (new.tokens != docs.tokens).any(axis=1)
    if (twins.usable & ~(changed & (new.answer != docs.answer))).any():
        failures.append("a document that kept its tokens or its answer must not be usable")
    if not np.array_equal(alone.documents.flat, new[:1].flat):
        failures.append("must treat documents independently; the first alone turns out otherwise")
    return failures
