"""Ablation of attention heads: they are replaced by their mean over documents."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mecheval.core.errors import InvalidInput
from mecheval.interventions.head_scores import HeadRow
from mecheval.metrics.behaviour import behaviour
from mecheval.metrics.statistics import proportion_interval
from mecheval.models.build import Model
from mecheval.models.site import Edit, Site, patch, sites
from mecheval.tasks.documents import Documents

Head = tuple[int, int]  # layer and head


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


def ablate(
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
