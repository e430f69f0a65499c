"""Documents as records of words, for `mecheval sample` and its JSON."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from mecheval.core.options import Field
from mecheval.tasks.corruption import Kind, Role, Seed, corrupt_by_kind
from mecheval.tasks.documents import NO_ANSWER, Documents
from mecheval.tasks.splits import Split
from mecheval.tasks.task import Task


@dataclass(frozen=True)
class Twin:
    """A corrupted document. Without an answer, `answer` and `answer_id` are None."""

    tokens: list[str]
    ids: list[int]
    roles: dict[str, int]
    answer: str | None
    answer_id: int | None
    usable: bool


@dataclass(frozen=True)
class Record:
    """A document; `answer` is the first of `answers`, and `parents` is for tasks with a tree."""

    index: int
    tokens: list[str]
    ids: list[int]
    roles: dict[str, int]
    answer: str | None
    answer_id: int | None
    queries: list[int]
    answers: list[str]
    corrupted: Twin
    parents: list[int] | None = None

    def to_dict(self) -> dict[str, Any]:
        record = asdict(self)
        if self.parents is None:
            del record["parents"]
        return record


def sample(
    task: Task,
    n: Annotated[int, Field(ge=1, le=10_000)],
    seed: Seed = 0,
    split: Split = "test",
    start: Annotated[int, Field(ge=0, lt=2**62)] = 0,
    role: Role = "key",
    kind: Kind = "resample",
) -> list[Record]:
    """Return n documents from number `start`, each with its corrupted twin."""
    docs = task.documents(seed, split, start, start + n)
    corrupted = corrupt_by_kind(task, docs, role, seed, kind)
    twins = []
    for i, usable in enumerate(corrupted.usable.tolist()):
        twins.append(Twin(**_fields(task, corrupted.documents, i), usable=usable))
    return [
        Record(
            index=int(docs.index[i]),
            **_fields(task, docs, i),
            queries=docs.queries[i].tolist(),
            answers=[task.word(answer) for answer in docs.answers[i].tolist()],
            corrupted=twins[i],
            parents=_parents(docs, i),
        )
        for i in range(n)
    ]


def _parents(docs: Documents, i: int) -> list[int] | None:
    return None if docs.parents is None else docs.parents[i, : docs.lengths[i]].tolist()


def _fields(task: Task, docs: Documents, i: int) -> dict[str, Any]:
    ids, answer = docs.tokens[i, : docs.lengths[i]].tolist(), int(docs.answer[i])
    return {
        "tokens": [task.word(token) for token in ids],
        "ids": ids,
        "roles": {role: int(position[i]) for role, position in docs.roles.items()},
        "answer": None if answer == NO_ANSWER else task.word(answer),
        "answer_id": None if answer == NO_ANSWER else answer,
    }
