"""The capacity curve: how often a model answers right, by number of pairs and by distance."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mecheval.core.errors import InvalidInput
from mecheval.core.notebook import html_table, short
from mecheval.metrics.statistics import mean_interval, proportion_interval
from mecheval.tasks.chance import chance
from mecheval.tasks.splits import Split
from mecheval.tasks.task import Task
from mecheval.tasks.words import Words

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from mecheval.models.build import Model

PAIRS = (2, 3, 4, 6, 8, 12, 16)
HEADER = ("pairs", "distance", "right answers", "likelihood", "chance", "documents")


@dataclass(frozen=True, slots=True)
class CapacityRow:
    """Right answers among `n` documents with so many pairs, with Wilson's 95 % interval.

    `distance` is the number of tokens from the value to the query; None for all distances. The
    likelihood of the right answer has an interval over documents. `chance` is the best accuracy
    without recall.
    """

    pairs: int
    distance: int | None
    n: int
    accuracy: float
    low: float
    high: float
    likelihood: float
    likelihood_low: float
    likelihood_high: float
    chance: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Capacity:
    """A capacity curve: rows by number of pairs, and by distance within each of them.

    Parameters
    ----------
    rows
        Right answers by pairs and distance.
    name
        How a figure is called.

    Examples
    --------
    >>> from mecheval import LanguageModel, ModelConfig, Recall, capacity
    >>> task = Recall(pairs=2, vocab=16)
    >>> model = LanguageModel(ModelConfig("attention", d_model=8), task.vocab_size)
    >>> curve = capacity(model, task, pairs=(2, 4), documents=8)
    >>> [(row.pairs, row.n) for row in curve.by_pairs()]
    [(2, 8), (4, 8)]
    """

    rows: tuple[CapacityRow, ...]
    name: str = ""

    def by_pairs(self) -> list[CapacityRow]:
        return [row for row in self.rows if row.distance is None]

    def by_distance(self, pairs: int) -> list[CapacityRow]:
        return [row for row in self.rows if row.distance is not None and row.pairs == pairs]

    def to_frame(self) -> "DataFrame":
        """Return a pandas DataFrame with a line for each row."""
        from pandas import DataFrame

        return DataFrame([row.to_dict() for row in self.rows])

    def plot(self) -> "Figure":
        """Return a matplotlib figure: accuracy by pairs with chance, and by distance."""
        from mecheval.metrics.capacity_figure import capacity_figure

        return capacity_figure(self)

    def lines(self) -> list[tuple[str, ...]]:
        """Return the rows as people read them, those of all distances alone."""
        return [_line(row) for row in self.by_pairs()]

    def __repr__(self) -> str:
        parts = [f"{row.pairs} pairs {row.accuracy:.0%}" for row in self.by_pairs()]
        return short(f"Capacity({self.name}{': ' if self.name else ''}{', '.join(parts)})")

    def _repr_html_(self) -> str:
        return html_table(repr(self), HEADER, [_line(row) for row in self.rows])


def capacity(
    model: "Model",
    task: Task,
    pairs: Sequence[int] = PAIRS,
    *,
    documents: int = 100,
    seed: int = 0,
    split: Split = "test",
    progress: Callable[[int, int], None] | None = None,
) -> Capacity:
    """Measure how often a model answers right, by number of pairs and by distance.

    Parameters
    ----------
    model
        Any model that reads the task's tokens.
    task
        A task with the option `pairs`, or such a task `in_words`.
    pairs
        Numbers of pairs. The symbols stay those of the task.
    documents
        Documents of each number of pairs.
    seed
        Seed of the documents.
    split
        Split of the documents.
    progress
        Called with the number of documents that are measured, and of all.

    Returns
    -------
    Capacity
        Accuracy with Wilson's intervals, likelihood and chance, as rows, table and figure.

    Examples
    --------
    >>> from mecheval import LanguageModel, ModelConfig, Recall, capacity
    >>> task = Recall(pairs=2, vocab=16)
    >>> model = LanguageModel(ModelConfig("attention", d_model=8), task.vocab_size)
    >>> capacity(model, task, pairs=(2, 3), documents=16).to_frame().shape[1]
    10
    """
    if documents < 1 or not pairs:
        raise InvalidInput(f"{documents=} and {pairs=} must not be empty")
    tasks = {number: with_pairs(task, number) for number in dict.fromkeys(pairs)}  # or refused
    from mecheval.metrics.behaviour import behaviour

    rows: list[CapacityRow] = []
    for done, (number, asked) in enumerate(tasks.items()):
        docs = asked.documents(seed, split, 0, documents)
        found = behaviour(model, docs)
        symbols: Any = asked.inner if isinstance(asked, Words) else asked  # words change no chance
        best = chance(symbols).best
        distance = docs.roles["query"] - docs.roles["value"]
        parts: list[int | None] = [None, *np.unique(distance).tolist()]
        for part in parts:
            which = np.ones(documents, bool) if part is None else distance == part
            values = found.accuracy[which], found.likelihood[which]
            rows.append(_row(number, part, *values, chance=best))
        if progress:
            progress((done + 1) * documents, len(tasks) * documents)
    return Capacity(tuple(rows))


def with_pairs(task: Task, pairs: int) -> Task:
    """Return a task with another number of pairs and the same symbols."""
    if isinstance(task, Words):
        return replace(task, inner=with_pairs(task.inner, pairs))
    if not hasattr(task, "pairs"):
        raise InvalidInput(f"a capacity curve needs a task with the option pairs, not {task}")
    changed: Any = task
    return replace(changed, pairs=pairs)


def most_pairs(task: Task, pairs: Sequence[int], longest: int) -> list[int]:
    """Return the numbers of pairs for which there are symbols, in documents up to a length."""
    symbols: Any = task.inner if isinstance(task, Words) else task
    with_pairs(task, getattr(symbols, "pairs", 0))  # what is refused now is not for its number
    possible = [number for number in pairs if _fits(task, number, longest)]
    if not possible:
        problem = f"{pairs=} are all too many for the task's symbols"
        raise InvalidInput(f"{problem} or the model's longest input, {longest}; give fewer")
    return possible


def _fits(task: Task, pairs: int, longest: int) -> bool:
    try:
        return with_pairs(task, pairs).max_len <= longest
    except InvalidInput:  # there are too few symbols
        return False


def _row(
    pairs: int, distance: int | None, right: np.ndarray, likelihood: np.ndarray, chance: float
) -> CapacityRow:
    n = len(right)
    ends = proportion_interval(int(right.sum()), n)
    likely = mean_interval(likelihood, (0.0, 1.0))
    return CapacityRow(
        pairs, distance, n, float(right.mean()), *ends, float(likelihood.mean()), *likely, chance
    )


def _line(row: CapacityRow) -> tuple[str, ...]:
    right = f"{row.accuracy:.0%} [{row.low:.0%}, {row.high:.0%}]"
    likely = f"{row.likelihood:.2f} [{row.likelihood_low:.2f}, {row.likelihood_high:.2f}]"
    distance = "all" if row.distance is None else str(row.distance)
    return str(row.pairs), distance, right, likely, f"{row.chance:.0%}", str(row.n)
