"""Induction heads: found by where they look, confirmed by taking them away.

A head's prefix-matching score is the weight by which a token attends to the token after its own
earlier occurrence (Olsson et al. 2022): on random tokens that are read twice, and on documents
from the query to the values of its key. The witness is an ablation: the heads with the highest
scores are replaced by their mean over documents, and as many other heads of the same layers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from numpy import ndarray
from torch import Tensor

from mecheval.core.errors import InvalidInput
from mecheval.core.notebook import html_table, short
from mecheval.metrics.behaviour import behaviour
from mecheval.metrics.statistics import mean_interval, proportion_interval
from mecheval.models.build import Model
from mecheval.models.site import Edit, Site, patch, sites
from mecheval.tasks.documents import Documents
from mecheval.tasks.splits import Split
from mecheval.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

Head = tuple[int, int]  # layer and head
Weights = Iterator[tuple[int, Float[Tensor, "n head time source"]]]
PerHead = Float64[ndarray, "n head"]
BLOCK = 16  # documents of a pass that keeps attention weights


@dataclass(frozen=True, slots=True)
class HeadRow:
    """A head's scores, means over `n` sequences with 95 % intervals.

    `repeated` is measured on random tokens that are read twice, `document` on documents.
    """

    layer: int
    head: int
    repeated: float
    repeated_low: float
    repeated_high: float
    document: float
    document_low: float
    document_high: float
    n: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class AblationRow:
    """Accuracy and likelihood with some heads replaced by their means; Wilson's interval."""

    ablated: str
    draw: int
    heads: tuple[Head, ...]
    accuracy: float
    low: float
    high: float
    likelihood: float
    n: int

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "heads": " ".join(f"{layer}.{head}" for layer, head in self.heads)}


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
            f"without the {len(top.heads)} heads that match prefixes most ({names}) right answers "
            f"fall from {_share(clean)} to {_share(top)}; without as many other heads of the same "
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

    twice = _score_repeated(model, task, docs, repeated, seed)
    step()
    asked = _score_documents(model, docs)
    step()
    rows = _rows(twice, asked)
    if len(rows) < 2:
        raise InvalidInput(f"model={model.name} has one head; there are no others to compare with")
    best = sorted(rows, key=lambda row: -row.repeated)[: min(top, len(rows) // 2)]
    chosen = tuple((row.layer, row.head) for row in best)
    ablations = [_ablate(model, docs, "none", 0, ())]
    ablations.append(_ablate(model, docs, "top", 0, chosen))
    step()
    rng = np.random.default_rng(seed)
    for draw in range(draws):
        ablations.append(_ablate(model, docs, "random", draw, _draw_others(rows, chosen, rng)))
        step()
    return Heads(tuple(rows), tuple(ablations))


def attention_weights(model: Any, tokens: Tensor) -> Weights:
    """Yield each layer that attends, with its weights."""
    if hasattr(model, "attention_weights"):
        yield from model.attention_weights(tokens)
        return
    names = [name for name in sites(model) if name.endswith(".mixer.scores")]
    if not names:
        raise InvalidInput(f"model={model.name} has no attention whose weights can be read")
    for name in names:  # one by one: each has a pass of its own
        seen: list[Tensor] = []
        with patch(model, {name: _keep(seen)}):
            model(tokens)
        yield int(name.split(".")[1]), seen[0]


def _keep(seen: list[Tensor]) -> Edit:
    def edit(x: Tensor, site: Site) -> Tensor:
        seen.append(x)
        return x

    return edit


def _score_repeated(
    model: Any, task: Task, docs: Documents, length: int, seed: int
) -> dict[int, PerHead]:
    """Read random tokens twice; the weight from each to the token after its first occurrence."""
    known = np.unique(docs.flat)
    allowed = getattr(task, "word_tokens", None)
    pool = known[known > 2] if allowed is None else np.array(allowed)
    rng = np.random.default_rng(seed)
    longest = getattr(model, "max_len", None) or model.config.max_len
    size = min(length, len(pool), (longest - 1) // 2)
    lead = docs.tokens[:1, :1]
    rows = [rng.permutation(pool)[:size] for _ in range(len(docs))]
    table = np.stack([np.concatenate([lead[0], row, row]) for row in rows])
    scores: dict[int, list[ndarray]] = {}
    for start in range(0, len(table), BLOCK):
        tokens = torch.from_numpy(table[start : start + BLOCK]).long()
        for layer, weights in attention_weights(model, tokens):
            here = torch.arange(1 + size, 2 * size)  # the last has no token after the first
            found = weights[:, :, here, here - size + 1].double().mean(dim=-1)
            scores.setdefault(layer, []).append(found.numpy())
    return {layer: np.concatenate(parts) for layer, parts in scores.items()}


def _score_documents(model: Any, docs: Documents) -> dict[int, PerHead]:
    """Return the weight from the word that is asked about to every reading of its value."""
    asked = docs.roles.get("query_key", docs.roles["query"])
    scores: dict[int, list[ndarray]] = {}
    for start in range(0, len(docs), BLOCK):
        rows = slice(start, start + BLOCK)
        part = docs[rows]
        value = torch.from_numpy(part.at("value")).long()
        tokens = torch.from_numpy(part.tokens).long()
        query = torch.from_numpy(asked[rows]).long()
        before = torch.arange(tokens.shape[1]) < query[:, None]
        wanted = (tokens == value[:, None]) & before
        for layer, weights in attention_weights(model, tokens):
            at_query = weights[torch.arange(len(tokens)), :, query].double()
            found = (at_query * wanted[:, None]).sum(dim=-1)
            scores.setdefault(layer, []).append(found.numpy())
    return {layer: np.concatenate(parts) for layer, parts in scores.items()}


def _rows(twice: Mapping[int, PerHead], asked: Mapping[int, PerHead]) -> list[HeadRow]:
    rows = []
    for layer, scores in twice.items():
        for head in range(scores.shape[1]):
            numbers: dict[str, Any] = {"layer": layer, "head": head, "n": len(scores)}
            for name, table in (("repeated", scores), ("document", asked[layer])):
                values = table[:, head]
                low, high = mean_interval(values, (0.0, 1.0))
                numbers[name] = float(values.mean())
                numbers |= {f"{name}_low": low, f"{name}_high": high}
            rows.append(HeadRow(**numbers))
    return rows


def _draw_others(
    rows: Sequence[HeadRow], chosen: Sequence[Head], rng: np.random.Generator
) -> tuple[Head, ...]:
    """Draw as many other heads, from the same layers where these have enough."""
    free = [(row.layer, row.head) for row in rows if (row.layer, row.head) not in chosen]
    drawn: list[Head] = []
    for layer, _ in chosen:
        near = [head for head in free if head[0] == layer] or free
        drawn.append(near[int(rng.integers(len(near)))])
        free.remove(drawn[-1])
    return tuple(sorted(drawn))


def _ablate(
    model: Model, docs: Documents, name: str, draw: int, some: tuple[Head, ...]
) -> AblationRow:
    by_layer: dict[int, list[int]] = {}
    for layer, head in some:
        by_layer.setdefault(layer, []).append(head)
    edits = {_head_site(model, layer): _to_mean(few) for layer, few in by_layer.items()}
    with ExitStack() as stack:
        if edits:
            stack.enter_context(patch(model, edits))
        found = behaviour(model, docs)
    right = found.accuracy
    ends = proportion_interval(int(right.sum()), len(right))
    means = float(right.mean()), *ends, float(found.likelihood.mean())
    return AblationRow(name, draw, some, *means, n=len(right))


def _head_site(model: Model, layer: int) -> str:
    """Return the site of what each head reads; mixers side by side have several with heads."""
    prefix = f"blocks.{layer}.mixer."
    for name, site in sites(model).items():
        if name.startswith(prefix) and name.endswith("head_out") and "head" in site.axes:
            return name
    raise InvalidInput(f"model={model.name} has no site of heads in layer {layer}; none is ablated")


def _to_mean(few: Sequence[int]) -> Edit:
    """Replace some heads by their mean over the documents at each position."""

    def edit(x: Tensor, site: Site) -> Tensor:
        axis = site.axes.index("head")
        index = torch.tensor(list(few), device=x.device)
        mean = x.index_select(axis, index).mean(dim=0, keepdim=True)
        shape = [size if i != axis else len(few) for i, size in enumerate(x.shape)]
        return x.index_copy(axis, index, mean.expand(shape))

    return edit


def _share(row: AblationRow) -> str:
    return f"{row.accuracy:.0%} [{row.low:.0%}, {row.high:.0%}]"
