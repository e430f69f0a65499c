"""Accuracies that need no recall: the levels beside which an accuracy is read."""

from dataclasses import asdict, dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from mecheval.core.errors import MechevalError
from mecheval.tasks.documents import Documents
from mecheval.tasks.task import Task

DOCUMENTS = 2048  # of each split: a level is known to about one point


@dataclass(frozen=True)
class Chance:
    """The accuracy of three ways to answer without looking at the key.

    `in_document`: any value of the document; `any_value`: any value at all; `most_frequent`: always
    the answer that is most frequent in training.
    """

    in_document: float
    any_value: float
    most_frequent: float

    @property
    def best(self) -> float:
        return max(self.in_document, self.any_value, self.most_frequent)

    def __str__(self) -> str:
        levels = {
            "any value of the document": self.in_document,
            "any value at all": self.any_value,
            "always the most frequent": self.most_frequent,
        }
        return ", ".join(f"{name} {_percent(level)}" for name, level in levels.items())

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


@lru_cache(maxsize=64)
def chance(task: Task, seed: int = 0) -> Chance:
    """Return the chance levels of a task on test, with answers counted in training documents.

    What can be an answer are the task's own `symbols("value")`, else every answer that occurs.
    """
    training, test = (task.documents(seed, split, 0, DOCUMENTS) for split in ("train", "test"))
    answers, counts = np.unique(training.answers, return_counts=True)
    symbols = getattr(task, "symbols", None)
    # a third-party task may have another thing of this name
    values = np.array(symbols("value")) if callable(symbols) else np.union1d(answers, test.answers)
    share = _share_of_values(test, np.isin(test.tokens, values) & _before_query(test))
    return Chance(
        in_document=float(share.mean()),
        any_value=1 / len(values),
        most_frequent=float((test.answers == answers[counts.argmax()]).mean()),
    )


def known_chance(text: str) -> Chance | None:
    """Return the chance levels of a task given by its spec; None if it cannot be built here."""
    from mecheval.tasks import tasks

    try:
        return chance(tasks.build(text))
    except MechevalError:  # a third-party task that is not registered here
        return None


def _percent(level: float) -> str:
    return f"{level:.1%}" if level >= 0.001 else f"{level:.2%}"


def _before_query(docs: Documents) -> Bool[ndarray, "n time"]:
    return np.arange(docs.tokens.shape[1]) < docs.roles["query"][:, None]


def _share_of_values(docs: Documents, marked: Bool[ndarray, "n time"]) -> ndarray:
    """Return for each query the chance that a random one of the marked tokens is its answer."""
    tokens = np.where(marked, docs.tokens, -1)
    ordered = np.sort(tokens, axis=1)
    new = np.ones_like(marked)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    different = (new & (ordered >= 0)).sum(axis=1)
    inside = (tokens[:, None, :] == docs.answers[:, :, None]).any(axis=2)
    return inside / np.maximum(different, 1)[:, None]
