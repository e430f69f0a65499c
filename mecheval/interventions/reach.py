"""Measure how far back the output at the query depends on the input, by perturbing one token.

Of the whole model, a token is replaced by another symbol, and the change is the total variation
distance between the two distributions over answers. Of one block, the input at one position is
replaced by that of the next position in another document, and the change is that of its output,
relative to its norm.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int
from numpy import ndarray
from torch import Tensor

from mecheval.metrics.statistics import interval
from mecheval.models.build import Model, is_ours
from mecheval.models.inputs import Batch
from mecheval.models.site import record
from mecheval.tasks.documents import FIRST_SYMBOL, Documents
from mecheval.tasks.task import Task

MATTERS = 0.01  # mean change from which a distance counts as read
EXACT = 1e-6  # change up to which nothing has changed but rounding
LEAST = 2  # documents of a distance
DISTANCES = 48  # at most as many are tried
Values = Float64[ndarray, " n"]
Changed = Callable[[Documents, Int[ndarray, " n"]], Values]


@dataclass(frozen=True)
class Change:
    """The mean change of the output when the token so many places before the query changes."""

    distance: int
    value: float
    low: float
    high: float
    n: int
    most: float


@dataclass(frozen=True)
class Reach:
    """The changes by distance, of the whole model (`layer` is None) or of one block.

    `tokens` is the largest distance at which the mean change matters, `possible` the largest at
    which anything changes at all.
    """

    layer: int | None
    tokens: int
    possible: int
    changes: tuple[Change, ...]

    @classmethod
    def of(cls, layer: int | None, changes: list[Change]) -> "Reach":
        tokens = [change.distance for change in changes if change.value >= MATTERS]
        possible = [change.distance for change in changes if change.most > EXACT]
        return cls(layer, max(tokens, default=0), max(possible, default=0), tuple(changes))


@torch.no_grad()
def reach(model: Model, task: Task, documents: int = 64, seed: int = 0) -> list[Reach]:
    """Return the reach of the model, then that of each block if it is a LanguageModel."""
    docs = task.documents(seed, "test", 0, documents)
    device = next(model.parameters()).device
    batch = Batch.of(docs, device)
    first = batch.at[:, :1]
    rng = np.random.default_rng(seed)
    clean = _distribution(model(batch.tokens, first))

    def change_token(part: Documents, at: Int[ndarray, " n"]) -> Values:
        rows = part.index - docs.index[0]
        tokens = _replaced(part, at, task.vocab_size - FIRST_SYMBOL, rng)
        other = _distribution(model(torch.from_numpy(tokens).long().to(device), first[rows]))
        distance: Values = 0.5 * np.abs(other - clean[rows]).sum(axis=-1)
        return distance

    answers = [Reach.of(None, list(_changes(docs, change_token)))]
    if is_ours(model):
        names = [f"blocks.{layer}.block_in" for layer in range(len(model.blocks))]
        with record(model, names) as streams:
            model(batch.tokens)
        for layer, name in enumerate(names):
            changed = _block_change(model.blocks[layer], streams[name], docs)
            answers.append(Reach.of(layer, list(_changes(docs, changed))))
    return answers


def _changes(docs: Documents, changed: Changed) -> Iterator[Change]:
    """Measure each distance that some documents are long enough for."""
    query = docs.roles["query"]
    longest = int(query.max(initial=0))
    steps = np.linspace(1, longest, min(DISTANCES, longest)).round().astype(int)
    for distance in sorted(set(steps.tolist())):
        part = docs[query >= distance]
        if len(part) >= LEAST:
            values = changed(part, part.roles["query"] - distance)
            ends = interval(values)
            yield Change(distance, float(values.mean()), *ends, len(values), float(values.max()))


def _block_change(block: torch.nn.Module, stream: Tensor, docs: Documents) -> Changed:
    every = torch.arange(len(docs))
    query = torch.from_numpy(docs.roles["query"]).long()
    clean = block(stream)[every, query].double()

    def change_input(part: Documents, at: Int[ndarray, " n"]) -> Values:
        rows = torch.from_numpy(part.index - docs.index[0])
        here = torch.arange(len(rows)), torch.from_numpy(at).long()
        inputs = stream[rows].clone()
        inputs[here] = inputs.roll((1, -1), dims=(0, 1))[here]
        change = block(inputs)[here[0], query[rows]].double() - clean[rows]
        relative = change.norm(dim=-1) / clean[rows].norm(dim=-1).clamp(min=1e-12)
        return np.asarray(relative.cpu().numpy())

    return change_input


def _distribution(logits: Tensor) -> ndarray:
    return np.asarray(logits[:, 0].double().softmax(dim=-1).cpu().numpy())


def _replaced(
    docs: Documents, at: Int[ndarray, " n"], symbols: int, rng: np.random.Generator
) -> Int[ndarray, "n time"]:
    """Return the tokens with another symbol at one position of each document."""
    tokens = docs.tokens.copy()
    rows = np.arange(len(docs))
    old = tokens[rows, at] - FIRST_SYMBOL
    shift = rng.integers(1, max(symbols, 2), len(docs))
    tokens[rows, at] = FIRST_SYMBOL + (np.maximum(old, 0) + shift) % symbols
    return tokens
