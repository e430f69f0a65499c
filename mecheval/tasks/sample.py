"""Documents as records of words, for `mecheval sample` and its JSON."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from mecheval.core.errors import InvalidInput
from mecheval.core.notebook import short
from mecheval.core.options import Field
from mecheval.tasks.corruption import Kind, Role, Seed, check_kind, corrupt_by_kind
from mecheval.tasks.documents import NO_ANSWER, Documents
from mecheval.tasks.splits import Split
from mecheval.tasks.task import Task
from mecheval.tasks.variables import check_role, variables_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


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

    def __repr__(self) -> str:
        return short(f"Record({self.index}: {' '.join(self.tokens)} → {self.answer})", 120)

    def to_dict(self) -> dict[str, Any]:
        record = asdict(self)
        if self.parents is None:
            del record["parents"]
        return record


class Sample(list[Record]):
    """Documents with their corrupted twins: a list that a notebook shows with roles coloured."""

    def to_frame(self) -> "DataFrame":
        """Return a pandas DataFrame with a row for each token, also of the twins."""
        from mecheval.tasks.document_view import documents_frame, record_lines

        lines = record_lines(self)
        clean, corrupt = documents_frame(lines[::2]), documents_frame(lines[1::2])
        return clean.assign(corrupted=corrupt["token"], corrupted_answer=corrupt["answer"])

    def plot(self) -> "Figure":
        """Return a matplotlib figure: below each document its corrupted twin."""
        from mecheval.tasks.document_view import SHOWN, documents_figure, record_lines

        return documents_figure(self._title, record_lines(self[:SHOWN]))

    @property
    def _title(self) -> str:
        return f"{len(self)} documents and their corrupted twins"

    def __repr__(self) -> str:
        first = f"; first: {self[0]!r}" if self else ""
        return short(f"Sample({len(self)} documents{first})")

    def _repr_html_(self) -> str:
        from mecheval.tasks.document_view import SHOWN, documents_html, record_lines

        return documents_html(self._title, record_lines(self[:SHOWN]))


def sample(
    task: Task,
    n: Annotated[int, Field(ge=1, le=10_000)],
    seed: Seed = 0,
    split: Split = "test",
    start: Annotated[int, Field(ge=0, lt=2**62)] = 0,
    role: Role | None = None,
    kind: Kind = "resample",
) -> Sample:
    """Return n documents from number `start`, each with its corrupted twin.

    Parameters
    ----------
    task
        The task.
    n
        Number of documents.
    seed
        Seed of documents and corruption.
    split
        Split of the documents.
    start
        Number of the first document.
    role
        Role that is corrupted, by default the task's first variable: mostly the key.
    kind
        A registered corruption.

    Returns
    -------
    Sample
        A list of records; a notebook shows their roles in colours.

    Examples
    --------
    >>> from mecheval import Recall, sample
    >>> (record,) = sample(Recall(pairs=2, vocab=8), 1)
    >>> record.roles["query"], len(record.tokens), record.corrupted.usable
    (6, 7, True)
    """
    if problem := check_kind(kind):  # before documents are drawn, which takes longer
        raise InvalidInput(problem)
    role = role or variables_of(task)[0]
    check_role(task, role)
    docs = task.documents(seed, split, start, start + n)
    corrupted = corrupt_by_kind(task, docs, role, seed, kind)
    twins = []
    for i, usable in enumerate(corrupted.usable.tolist()):
        twins.append(Twin(**_fields(task, corrupted.documents, i), usable=usable))
    return Sample(
        Record(
            index=int(docs.index[i]),
            **_fields(task, docs, i),
            queries=docs.queries[i].tolist(),
            answers=[task.word(answer) for answer in docs.answers[i].tolist()],
            corrupted=twins[i],
            parents=_parents(docs, i),
        )
        for i in range(n)
    )


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
