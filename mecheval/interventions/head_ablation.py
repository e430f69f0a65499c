"""Ablation of attention heads: they are replaced by their mean over documents."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from mecheval.core.errors import InvalidInput
from mecheval.interventions.head_scores import HeadRow
from mecheval.metrics.behaviour import BLOCK, behaviour
from mecheval.metrics.statistics import proportion_interval
from mecheval.models.build import Model
from mecheval.models.inputs import Batch
from mecheval.models.site import Edit, Site, patch, record, sites
from mecheval.tasks.documents import Documents

Head = tuple[int, int]  # layer and head
Mean = Float64[Tensor, "time head d_head"]


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


def draw_others(
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


@torch.no_grad()
def head_means(model: Model, docs: Documents, layers: Collection[int]) -> dict[int, Mean]:
    """Return what the heads of some layers give at each position, averaged over all documents.

    A document counts up to its own length.
    """
    names = {_head_site(model, layer): layer for layer in layers}
    device, longest = next(model.parameters()).device, int(docs.lengths.max())
    totals: dict[int, Tensor] = {}
    counts = torch.zeros(longest, 1, 1, dtype=torch.float64)
    for start in range(0, len(docs), BLOCK):
        part = docs[start : start + BLOCK]
        batch, width = Batch.of(part, device), int(part.lengths.max())
        inside = torch.arange(width) < torch.from_numpy(part.lengths)[:, None]
        counts[:width, 0, 0] += inside.sum(dim=0)
        with record(model, list(names)) as seen:
            model(batch.tokens, batch.at)
        for name, layer in names.items():
            x = seen[name].cpu().double()[:, :width]
            total = totals.setdefault(layer, torch.zeros(longest, *x.shape[2:], dtype=x.dtype))
            total[:width] += (x * inside[:, :, None, None]).sum(dim=0)
    return {layer: total / counts for layer, total in totals.items()}


def ablate(
    model: Model,
    docs: Documents,
    name: str,
    draw: int,
    some: tuple[Head, ...],
    means: Mapping[int, Mean],
) -> AblationRow:
    """Measure the documents with some heads replaced by their means."""
    by_layer: dict[int, list[int]] = {}
    for layer, head in some:
        by_layer.setdefault(layer, []).append(head)
    edits = {_head_site(model, n): _to_mean(few, means[n]) for n, few in by_layer.items()}
    with ExitStack() as stack:
        if edits:
            stack.enter_context(patch(model, edits))
        found = behaviour(model, docs)
    right = found.accuracy
    ends = proportion_interval(int(right.sum()), len(right))
    averages = float(right.mean()), *ends, float(found.likelihood.mean())
    return AblationRow(name, draw, some, *averages, n=len(right))


def _head_site(model: Model, layer: int) -> str:
    """Return the site of what each head reads, beside that of the same mixer's attention weights.

    A mixer beside attention can have heads, too.
    """
    prefix, known = f"blocks.{layer}.mixer.", sites(model)
    for name in known:
        attends = name.removesuffix("head_out") + "scores" in known
        if name.startswith(prefix) and name.endswith("head_out") and attends:
            return name
    raise InvalidInput(f"model={model.name} has no site of heads in layer {layer}; none is ablated")


def _to_mean(few: Sequence[int], mean: Mean) -> Edit:
    """Replace some heads by their mean over the documents at each position."""

    def edit(x: Tensor, site: Site) -> Tensor:
        new = mean[: x.shape[1], list(few)].to(x).expand(len(x), -1, -1, -1)
        return x.index_copy(2, torch.tensor(few, device=x.device), new)

    return edit
