"""Scores of attention heads by prefix matching.

It is the weight by which a token attends to the token after its own earlier occurrence: on random
tokens that are read twice, and on documents from the query to the values of its key.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from numpy import ndarray
from torch import Tensor

from mecheval.core.errors import InvalidInput
from mecheval.metrics.statistics import mean_interval
from mecheval.models.site import Edit, Site, patch, sites
from mecheval.tasks.documents import Documents
from mecheval.tasks.task import Task

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


def attention_weights(model: Any, tokens: Tensor) -> Weights:
    """Yield each layer that attends, with its weights."""
    whole = hasattr(model, "attention_weights")
    names = [name for name in sites(model) if name.endswith(".mixer.scores")]
    if not (model.attending if whole else names):
        raise InvalidInput(f"model={model.name} has no attention whose weights can be read")
    if whole:
        yield from model.attention_weights(tokens)
        return
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


def score_repeated(
    model: Any, task: Task, docs: Documents, length: int, seed: int
) -> dict[int, PerHead]:
    """Read random tokens twice; the weight from each to the token after its first occurrence."""
    known = np.unique(docs.flat)
    allowed = getattr(task, "word_tokens", None)
    pool = known[known > 2] if allowed is None else np.array(allowed)
    rng = np.random.default_rng(seed)
    longest = getattr(model, "max_len", None) or model.config.max_len
    size = min(length, len(pool), (longest - 1) // 2)
    if size < 2:
        problem = f"{len(pool)} tokens and a longest input of {longest}"
        raise InvalidInput(f"{problem} leave {size} to be read twice; 2 are needed")
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


def score_documents(model: Any, docs: Documents) -> dict[int, PerHead]:
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


def head_rows(twice: Mapping[int, PerHead], asked: Mapping[int, PerHead]) -> list[HeadRow]:
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
