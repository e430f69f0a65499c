"""Induction heads: found by where they look, confirmed by taking them away.

A head's prefix-matching score is the weight by which a token attends to the token after its own
earlier occurrence (Olsson et al. 2022). The witness is an ablation: the heads with the highest
scores are replaced by their mean over documents, and as many other heads of the same layers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from mecheval.core.errors import InvalidInput
from mecheval.core.notebook import html_table, short
from mecheval.interventions.head_ablation import (
    AblationRow,
    Head,
    ablate,
    draw_others,
    head_means,
)
from mecheval.interventions.head_scores import HeadRow, head_rows, score_documents, score_repeated
from mecheval.models.build import Model
from mecheval.tasks.splits import Split
from mecheval.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@dataclass(frozen=True)
class Heads:
    """Scores of all heads, and what their ablation does.

    Parameters
    ----------
    rows
        The scores of every head.
    ablations
        Accuracy with all heads, without the best, and without random others.

    Examples
    --------
    >>> from mecheval import LanguageModel, ModelConfig, Recall, heads
    >>> task = Recall(pairs=3, vocab=16)
    >>> config = ModelConfig("attention:heads=2", d_model=8)
    >>> found = heads(LanguageModel(config, task.vocab_size), task, documents=8, top=1)
    >>> len(found.rows), [row.ablated for row in found.ablations][:3]
    (4, ['none', 'top', 'random'])
    """

    rows: tuple[HeadRow, ...]
    ablations: tuple[AblationRow, ...]

    @property
    def top(self) -> tuple[Head, ...]:
        return next((row.heads for row in self.ablations if row.ablated == "top"), ())

    def to_frame(self) -> "DataFrame":
        """Return a pandas DataFrame with a line for each head."""
        from pandas import DataFrame

        return DataFrame([row.to_dict() for row in self.rows])

    def ablation_frame(self) -> "DataFrame":
        """Return a pandas DataFrame with a line for each ablation."""
        from pandas import DataFrame

        return DataFrame([row.to_dict() for row in self.ablations])

    def plot(self) -> "Figure":
        """Return a matplotlib figure: the scores by layer and head, and the ablations."""
        from mecheval.interventions.heads_figure import heads_figure

        return heads_figure(self)

    def __str__(self) -> str:
        """Say what the heads do, each statement with its numbers."""
        by = {(row.ablated, row.draw): row for row in self.ablations}
        clean, top = by["none", 0], by["top", 0]
        others = [row for row in self.ablations if row.ablated == "random"]
        names = ", ".join(f"{layer}.{head}" for layer, head in top.heads)
        worst = min(others, key=lambda row: row.accuracy)
        low, high = (end([row.accuracy for row in others]) for end in (min, max))
        return (
            f"right answers are {_share(clean)}, and {_share(top)} without the {len(top.heads)} "
            f"heads that match prefixes most ({names}); without as many other heads of the same "
            f"layers they are {low:.0%} to {high:.0%} in {len(others)} draws "
            f"(worst {_share(worst)})"
        )

    def __repr__(self) -> str:
        return short(f"Heads({self})")

    def _repr_html_(self) -> str:
        lines = [list(row.to_dict().values()) for row in self.ablations]
        return html_table(str(self), list(self.ablations[0].to_dict()), lines)


@torch.no_grad()
def heads(
    model: Model,
    task: Task,
    *,
    documents: int = 100,
    top: int = 8,
    draws: int = 5,
    repeated: int = 25,
    seed: int = 0,
    split: Split = "test",
    progress: Callable[[int, int], None] | None = None,
) -> Heads:
    """Score every attention head by prefix matching, and ablate the best.

    Parameters
    ----------
    model
        A model with attention: ours, or one that `load_hf` has returned.
    task
        The task whose documents are asked.
    documents
        Documents, and sequences of random tokens.
    top
        Heads that are ablated together, at most half of all.
    draws
        Draws of as many random heads, from the same layers where these have enough.
    repeated
        Random tokens that are read twice.
    seed
        Seed of documents, tokens and random heads.
    split
        Split of the documents.
    progress
        Called with the number of steps that are done, and of all.

    Returns
    -------
    Heads
        Scores with intervals, and the accuracy with and without the heads.

    Examples
    --------
    >>> from mecheval import LanguageModel, ModelConfig, Recall, heads
    >>> task = Recall(pairs=3, vocab=16)
    >>> config = ModelConfig("attention:heads=2", d_model=8)
    >>> found = heads(LanguageModel(config, task.vocab_size), task, documents=8, top=1)
    >>> found.to_frame().columns.tolist()[:3]
    ['layer', 'head', 'repeated']
    """
    if documents < 2 or top < 1 or draws < 1 or repeated < 2:
        raise InvalidInput(f"{documents=}, {top=}, {draws=} and {repeated=} are too few")
    docs = task.documents(seed, split, 0, documents)
    steps, done = 3 + draws, 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, steps)

    twice = score_repeated(model, task, docs, repeated, seed)
    step()
    asked = score_documents(model, docs)
    step()
    rows = head_rows(twice, asked)
    if len(rows) < 2:
        raise InvalidInput(f"model={model.name} has one head; there are no others to compare with")
    best = sorted(rows, key=lambda row: -row.repeated)[: min(top, len(rows) // 2)]
    chosen = tuple((row.layer, row.head) for row in best)
    means = head_means(model, docs, {row.layer for row in rows})
    ablations = [ablate(model, docs, "none", 0, (), means)]
    ablations.append(ablate(model, docs, "top", 0, chosen, means))
    step()
    rng = np.random.default_rng(seed)
    for draw in range(draws):
        others = draw_others(rows, chosen, rng)
        ablations.append(ablate(model, docs, "random", draw, others, means))
        step()
    return Heads(tuple(rows), tuple(ablations))


def _share(row: AblationRow) -> str:
    return f"{row.accuracy:.0%} [{row.low:.0%}, {row.high:.0%}]"
