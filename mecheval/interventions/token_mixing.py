"""Where the tokens of a document look: attention's weights, and what they are in mixers without a softmax.

A mixer that says so (`mixing`) is o_t = Σ_s W_ts v_s, with weights that depend on the document. Those of attention and
linear attention are positive and sum to 1; those of the delta rule and of Mamba, unrolled from the recurrence, need
not be either, so beside a weight stands its share |W_ts| / Σ_s |W_ts|.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mecheval.core.errors import InterventionError, InvalidInput
from mecheval.interventions.grid import Looks, PerDocument
from mecheval.interventions.options import MEMORY
from mecheval.interventions.positions import positions
from mecheval.models.build import Model, ours
from mecheval.models.inputs import Batch
from mecheval.models.language_model import LanguageModel
from mecheval.models.site import record
from mecheval.tasks.documents import ROLES, Documents
from mecheval.tasks.splits import Split
from mecheval.tasks.task import Task


@torch.no_grad()
def looks(
    model: Model,
    task: Task,
    *,
    documents: int = 320,
    seed: int = 0,
    split: Split = "test",
    from_roles: Sequence[str] = ("query", "value"),
    to_roles: Sequence[str] = ROLES,
    memory: int = MEMORY,
) -> Looks:
    """Of every head in every layer; in Mamba, every channel is a head."""
    model = ours(model, "only their mixers say where they look")
    layers = [layer for layer in range(len(model.blocks)) if hasattr(_mixer(model, layer), "mixing")]
    if not layers:
        raise InvalidInput(f"architecture={model.config.architecture} must have a mixer that says where it looks")
    if not (documents > 0 and from_roles and to_roles):
        raise InvalidInput(f"documents={documents}, {from_roles=} and {to_roles=} must not be empty")
    docs = task.documents(seed, split, 0, documents)
    places = [[positions(docs, role) for role in roles] for roles in (from_roles, to_roles)]
    here, there = (torch.from_numpy(np.stack([where for where, _ in side], axis=1)) for side in places)
    missing_here, missing_there = (~np.stack([inside for _, inside in side], axis=1) for side in places)
    size = max(memory // _bytes_of_a_document(model, layers, docs), 1)
    blocks = [slice(start, start + size) for start in range(0, len(docs), size)]
    found = [_block(model, layers, docs[rows], here[rows], there[rows]) for rows in blocks]
    missing = (missing_here[:, :, None] | missing_there[:, None])[:, None]
    weights, shares = (
        {layer: np.where(missing, np.nan, np.concatenate([block[layer][i] for block in found])) for layer in layers}
        for i in (0, 1)
    )
    silent = tuple(layer for layer in range(len(model.blocks)) if layer not in layers)
    return Looks(tuple(from_roles), tuple(to_roles), weights, shares, silent)


def _block(
    model: LanguageModel, layers: Sequence[int], docs: Documents, here: Tensor, there: Tensor
) -> dict[int, tuple[PerDocument, PerDocument]]:
    """Weights and shares of some documents, between all their places."""
    names = {layer: f"blocks.{layer}.mixer_in" for layer in layers}
    with record(model, list(names.values())) as seen:
        _run(model, docs)
    found = {}
    for layer, name in names.items():
        weights, _ = _mixer(model, layer).mixing(seen[name])
        if not weights.isfinite().all():
            raise InterventionError(f"layer {layer} has mixing weights that are no numbers; nothing can be read off it")
        rows = _taken(weights, here, dim=2).double()
        shares = rows.abs() / rows.abs().sum(dim=-1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
        found[layer] = _taken(rows, there, dim=3).cpu().numpy(), _taken(shares, there, dim=3).cpu().numpy()
    return found


def _taken(weights: Tensor, at: Tensor, dim: int) -> Tensor:
    """Of each document, the rows or columns at its own places."""
    shape = [len(at), 1, 1, 1]
    shape[dim] = at.shape[1]
    spread = [size if axis not in (0, dim) else -1 for axis, size in enumerate(weights.shape)]
    return weights.gather(dim, at.to(weights.device).view(shape).expand(spread))


def _mixer(model: LanguageModel, layer: int) -> Any:
    return model.get_submodule(f"blocks.{layer}.mixer")


def _run(model: LanguageModel, docs: Documents) -> None:
    batch = Batch.of(docs, model.embedding.weight.device)
    model(batch.tokens, batch.at)


def _bytes_of_a_document(model: LanguageModel, layers: Sequence[int], docs: Documents) -> int:
    """Roughly: the weights of the layer with most heads, some four times."""
    x = torch.zeros(1, 1, model.config.d_model).to(model.embedding.weight)
    heads = max(_mixer(model, layer).mixing(x)[0].shape[1] for layer in layers)
    return int(4 * heads * int(docs.lengths.max()) ** 2 * x.element_size())
