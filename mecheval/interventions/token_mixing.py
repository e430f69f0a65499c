"""Token mixing: the weights by which tokens of a document mix, in attention and in other mixers.

A mixer with `mixing` computes o_t = Σ_s W_ts v_s with weights that depend on the document. Those of
attention and linear attention are positive and sum to 1. Those of the delta rule and of Mamba,
unrolled from the recurrence, need not: each weight comes with its share |W_ts| / Σ_s |W_ts|.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from numpy import ndarray
from torch import Tensor

from mecheval.core.errors import InterventionError, InvalidInput
from mecheval.core.notebook import short
from mecheval.interventions.grid import MEMORY
from mecheval.interventions.positions import positions
from mecheval.metrics.statistics import middle, resampled
from mecheval.models.build import Model, ours
from mecheval.models.inputs import Batch
from mecheval.models.language_model import LanguageModel
from mecheval.models.site import record
from mecheval.tasks.documents import ROLES, Documents
from mecheval.tasks.splits import Split
from mecheval.tasks.task import Task

if TYPE_CHECKING:
    from pandas import DataFrame

PerDocument = Float64[ndarray, "n head from to"]
Weights = Iterator[tuple[int, Float[Tensor, "n head time source"]]]


@dataclass(frozen=True, slots=True)
class MixingRow:
    """The mean weight from one role to another over `n` documents, its 95 % interval and share.

    Two roles can be one token (a last pair's next key is the divider): shares may sum to over 1.
    """

    layer: int
    head: int
    from_role: str
    to_role: str
    weight: float
    share: float
    n: int
    low: float
    high: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class TokenMixing:
    """The weights and shares of each document between roles, by layer; NaN without the token.

    `without_weights` lists the layers whose mixers do not define `mixing`.

    Examples
    --------
    >>> from mecheval import LanguageModel, ModelConfig, Recall, token_mixing
    >>> task = Recall(pairs=4, vocab=16)
    >>> model = LanguageModel(ModelConfig("delta_net", d_model=8), task.vocab_size)
    >>> mixing = token_mixing(model, task, documents=16, to_roles=("key", "value"))
    >>> list(mixing.weights), mixing.without_weights
    ([0, 1], ())
    """

    from_roles: tuple[str, ...]
    to_roles: tuple[str, ...]
    weights: dict[int, PerDocument]
    shares: dict[int, PerDocument]
    without_weights: tuple[int, ...]

    def rows(self) -> list[MixingRow]:
        """Return one row for each layer, head and pair of roles that some document has."""
        return [row for layer in self.weights for row in self._layer_rows(layer)]

    def to_frame(self) -> "DataFrame":
        """Return the rows as a pandas DataFrame."""
        from pandas import DataFrame

        return DataFrame([row.to_dict() for row in self.rows()])

    def __repr__(self) -> str:
        roles = f"from {', '.join(self.from_roles)} to {', '.join(self.to_roles)}"
        return short(f"TokenMixing(layers {', '.join(map(str, self.weights))}; {roles})")

    def _layer_rows(self, layer: int) -> Iterator[MixingRow]:
        weights = np.moveaxis(self.weights[layer], 0, -1)
        shares = np.moveaxis(self.shares[layer], 0, -1)
        counts = (~np.isnan(weights)).sum(axis=-1)
        # not `interval`: a weight that is 0 or 1 is no count of right answers
        again = resampled(weights)
        for head, i, j in np.ndindex(counts.shape):
            n = int(counts[head, i, j])
            if n:
                mean, share = (float(np.nanmean(x[head, i, j])) for x in (weights, shares))
                roles = self.from_roles[i], self.to_roles[j]
                yield MixingRow(layer, head, *roles, mean, share, n, *middle(again[head, i, j]))


@torch.no_grad()
def token_mixing(
    model: Model,
    task: Task,
    *,
    documents: int = 320,
    seed: int = 0,
    split: Split = "test",
    from_roles: Sequence[str] = ("query", "value"),
    to_roles: Sequence[str] = ROLES,
    memory: int = MEMORY,
) -> TokenMixing:
    """Measure the mixing weights between roles in every head; a channel of Mamba is a head.

    Parameters
    ----------
    model
        A model of ours.
    task
        Draws the documents.
    documents
        Number of documents.
    seed
        Seed of the documents.
    split
        Split of the documents.
    from_roles
        Tokens that receive.
    to_roles
        Tokens that are read.
    memory
        Bytes at a time, roughly.

    Returns
    -------
    TokenMixing
        Weights and shares of each document, by layer.

    Examples
    --------
    >>> from mecheval import LanguageModel, ModelConfig, Recall, token_mixing
    >>> task = Recall(pairs=4, vocab=16)
    >>> model = LanguageModel(ModelConfig("delta_net", d_model=8), task.vocab_size)
    >>> mixing = token_mixing(model, task, documents=16, to_roles=("key",))
    >>> [(row.layer, row.from_role, row.to_role, row.n) for row in mixing.rows()][0]
    (0, 'query', 'key', 16)
    """
    model = ours(model, "only their mixers define `mixing`")
    every = range(len(model.blocks))
    layers = [layer for layer in every if hasattr(_mixer(model, layer), "mixing")]
    if not layers:
        architecture = model.config.architecture
        raise InvalidInput(f"architecture={architecture} has no mixer that defines `mixing`")
    if not (documents > 0 and from_roles and to_roles):
        raise InvalidInput(f"{documents=}, {from_roles=} and {to_roles=} must not be empty")
    docs = task.documents(seed, split, 0, documents)
    source, outside_source = _places(docs, from_roles)
    target, outside_target = _places(docs, to_roles)
    missing = (outside_source[:, :, None] | outside_target[:, None])[:, None]
    size = max(memory // _bytes_per_document(model, layers, docs), 1)
    weights: dict[int, list[PerDocument]] = {layer: [] for layer in layers}
    shares: dict[int, list[PerDocument]] = {layer: [] for layer in layers}
    for start in range(0, len(docs), size):
        rows = slice(start, start + size)
        for layer, W in _weights(model, layers, docs[rows]):
            W = _select(W, source[rows], dim=2).double()
            total = W.abs().sum(dim=-1, keepdim=True).clamp(min=torch.finfo(W.dtype).tiny)
            weights[layer].append(_select(W, target[rows], dim=3).cpu().numpy())
            shares[layer].append(_select(W.abs() / total, target[rows], dim=3).cpu().numpy())
    return TokenMixing(
        tuple(from_roles),
        tuple(to_roles),
        {layer: np.where(missing, np.nan, np.concatenate(weights[layer])) for layer in layers},
        {layer: np.where(missing, np.nan, np.concatenate(shares[layer])) for layer in layers},
        tuple(layer for layer in every if layer not in layers),
    )


def _places(docs: Documents, roles: Sequence[str]) -> tuple[Tensor, ndarray]:
    """Return the positions of roles, (n, roles), and where they are outside of a document."""
    where, inside = zip(*(positions(docs, role) for role in roles), strict=True)
    return torch.from_numpy(np.stack(where, axis=1)), ~np.stack(inside, axis=1)


def _weights(model: LanguageModel, layers: list[int], docs: Documents) -> Weights:
    """Yield each layer with its mixing weights."""
    names = {layer: f"blocks.{layer}.mixer_in" for layer in layers}
    batch = Batch.of(docs, model.embedding.weight.device)
    with record(model, list(names.values())) as seen:
        model(batch.tokens, batch.at)
    for layer, name in names.items():
        weights, _ = _mixer(model, layer).mixing(seen[name])
        if not weights.isfinite().all():
            raise InterventionError(f"the mixing weights of layer {layer} are not finite")
        yield layer, weights


def _select(weights: Tensor, at: Tensor, dim: int) -> Tensor:
    """Take, from each document, the rows or columns at its own positions."""
    shape = [len(at), 1, 1, 1]
    shape[dim] = at.shape[1]
    spread = [size if axis not in (0, dim) else -1 for axis, size in enumerate(weights.shape)]
    return weights.gather(dim, at.to(weights.device).view(shape).expand(spread))


def _mixer(model: LanguageModel, layer: int) -> Any:
    return model.get_submodule(f"blocks.{layer}.mixer")


def _bytes_per_document(model: LanguageModel, layers: Sequence[int], docs: Documents) -> int:
    """Estimate: four times the weights of the layer with most heads."""
    x = torch.zeros(1, 1, model.config.d_model).to(model.embedding.weight)
    heads = max(_mixer(model, layer).mixing(x)[0].shape[1] for layer in layers)
    return int(4 * heads * int(docs.lengths.max()) ** 2 * x.element_size())
