"""Statistics of a data set that decide how far a score on it can be trusted."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from mecheval.core.notebook import html_table, short
from mecheval.core.options import Field
from mecheval.tasks.corruption import Seed
from mecheval.tasks.documents import Documents
from mecheval.tasks.splits import Split
from mecheval.tasks.task import Task
from mecheval.tasks.variables import variables_of

if TYPE_CHECKING:
    from pandas import DataFrame

TRAIN, EVALUATION = 100_032, 1_024  # §4.1, and the documents the authors drew for evaluation


@dataclass(frozen=True)
class SplitStats:
    """One split; counts are numbers of documents, distances and lengths are in tokens.

    A task without a key and a value has its first variable instead of the key, and distances from
    there to the query.
    """

    split: Split
    documents: int
    shortest: int
    mean_length: float
    longest: int
    mean_distance: float
    longest_distance: int
    seen_in_training: int
    answer_survived_key_corruption: int


@dataclass(frozen=True)
class DatasetStats:
    """The training set, and how both evaluation splits relate to it."""

    vocab_size: int
    max_len: int
    train_documents: int
    train_bytes: int
    train_repeats: int
    splits: tuple[SplitStats, ...]

    def to_frame(self) -> "DataFrame":
        """Return a pandas DataFrame with a row for each evaluation split."""
        from pandas import DataFrame

        return DataFrame([vars(split) for split in self.splits])

    def __repr__(self) -> str:
        facts = [f"{self.train_documents} training documents ({self.train_repeats} repeats)"]
        for split in self.splits:
            facts.append(f"{split.split}: {split.documents}, {split.seen_in_training} seen")
        return short(f"DatasetStats({'; '.join(facts)} in training; vocab_size={self.vocab_size})")

    def _repr_html_(self) -> str:
        names = list(vars(self.splits[0])) if self.splits else []
        rows = []
        for name in names[1:]:
            values = [getattr(split, name) for split in self.splits]
            numbers = [f"{value:.2f}" if isinstance(value, float) else value for value in values]
            rows.append([name.replace("_", " "), *numbers])
        return html_table(repr(self), ["", *(split.split for split in self.splits)], rows)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def describe(
    task: Task,
    seed: Seed = 0,
    train: Annotated[int, Field(ge=1, le=2**24)] = TRAIN,
    evaluation: Annotated[int, Field(ge=1, le=2**20)] = EVALUATION,
) -> DatasetStats:
    """Draw the training set and both evaluation sets, and count.

    Parameters
    ----------
    task
        The task.
    seed
        Seed of the documents.
    train
        Documents of the training set.
    evaluation
        Documents of dev and of test.

    Returns
    -------
    DatasetStats
        Lengths, distances, repeats, and answers that survived a corruption.

    Examples
    --------
    >>> from mecheval import Recall, describe
    >>> describe(Recall(pairs=4, vocab=64), train=200, evaluation=50).splits[0].documents
    50
    """
    training = task.documents(seed, "train", 0, train)
    known = set(texts(training))
    splits = []
    for split in ("dev", "test"):
        docs = task.documents(seed, split, 0, evaluation)
        splits.append(_split_stats(task, docs, split, seed, known))
    return DatasetStats(
        vocab_size=task.vocab_size,
        max_len=task.max_len,
        train_documents=train,
        train_bytes=training.nbytes,
        train_repeats=train - len(known),
        splits=tuple(splits),
    )


def texts(docs: Documents) -> list[bytes]:
    """Return each document, its queries included, as bytes to compare."""
    ends = np.cumsum(docs.lengths)
    starts = ends - docs.lengths
    return [docs.flat[a:b].tobytes() for a, b in zip(starts, ends, strict=True)]


def _split_stats(
    task: Task,
    docs: Documents,
    split: Split,
    seed: int,
    known: set[bytes],
) -> SplitStats:
    variable, *_ = variables_of(task)
    far = docs.roles["value" if {"key", "value"} <= docs.roles.keys() else "query"]
    distance = np.abs(far - docs.roles[variable])
    return SplitStats(
        split=split,
        documents=len(docs),
        shortest=int(docs.lengths.min()),
        mean_length=float(docs.lengths.mean()),
        longest=int(docs.lengths.max()),
        mean_distance=float(distance.mean()),
        longest_distance=int(distance.max()),
        seen_in_training=sum(text in known for text in texts(docs)),
        answer_survived_key_corruption=int((~task.corrupt(docs, variable, seed).usable).sum()),
    )
