"""What a recurrent state holds: S_t over time, and which pairs can be read from it after each token.

The mixer itself is asked. A document asks for one of its pairs, drawn at random. S_t is put in the place of the state
at the query, and what the mixer then adds to the stream there, less what it adds with an empty state, is what S_t says
of that pair. A least-squares map takes this to the embedding of the pair's value. It is fitted on the first half of
the documents; on the second, the nearest value among those seen by then is right or wrong.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float64, Int64
from numpy import ndarray
from torch import Tensor, nn

from mecheval.core.errors import InterventionError, InvalidInput
from mecheval.interventions.options import MEMORY
from mecheval.models.build import Model, ours
from mecheval.models.edits import Positions, put, take
from mecheval.models.inputs import Batch
from mecheval.models.language_model import LanguageModel
from mecheval.models.ops import gather_reads
from mecheval.models.site import patch, record, sites
from mecheval.tasks.corruption import Corruptible
from mecheval.tasks.documents import Documents
from mecheval.tasks.splits import Split
from mecheval.tasks.task import Task

NEEDED = "only of their mixers is it known how a state is read"
WIDTHS = (1, 2, 4, 8, 16)  # tokens that a short convolution may see

Stream = Float[Tensor, "n time d_model"]
Few = Float[Tensor, "n few d_model"]
States = Float[Tensor, "n time *state"]
Said = Float64[Tensor, "n time d_model"]
Directions = Float64[Tensor, "vocab d_model"]
Readout = Float64[Tensor, "d_model d_model"]


@dataclass(frozen=True)
class Held:
    """By age, the tokens since a pair was complete: how often its value is read from the state of `n` documents.

    `control` is the same with the state of another document: what the query knows by itself, in deeper layers perhaps
    the answer. `chance` is one in the values seen by then.
    """

    age: Int64[ndarray, " ages"]
    accuracy: Float64[ndarray, " ages"]
    control: Float64[ndarray, " ages"]
    chance: Float64[ndarray, " ages"]
    n: Int64[ndarray, " ages"]


def states(model: Model, docs: Documents, layer: int, *, memory: int = MEMORY) -> Iterator[tuple[Documents, States]]:
    """Some documents at a time, and their states after each token; behind a document's end they mean nothing."""
    model = ours(model, NEEDED)
    size = _block_size(model, layer, docs, memory)
    return ((block, _seen(model, layer, "mixer.state", block)) for block in _blocks(docs, size))


@torch.no_grad()
def held_pairs(
    model: Model,
    task: Task,
    layer: int,
    *,
    documents: int = 640,
    seed: int = 0,
    split: Split = "test",
    memory: int = MEMORY,
) -> Held:
    """At every age that a pair of the second half has. Where only one value was seen, nothing is asked."""
    model = ours(model, NEEDED)
    if not (isinstance(task, Corruptible) and getattr(task, "pairs", 0) > 1):
        raise InvalidInput(f"task={type(task).__name__} must have documents of several pairs, as recall:pairs=8 has")
    if documents < 4:
        raise InvalidInput(f"documents={documents} must be at least 4: one half to fit, one to be read and compared")
    docs = task.documents(seed, split, 0, documents)
    size = _block_size(model, layer, docs, memory)
    first, second = docs[: documents // 2], docs[documents // 2 :]
    others = second[np.roll(np.arange(len(second)), 1)]
    directions = _directions(model, task)
    readout = _fitted(model, layer, _blocks(first, size), directions)
    counts = np.zeros((4, task.max_len))
    for block, other in zip(_blocks(second, size), _blocks(others, size), strict=True):
        asked, seen = _asked(block), _seen_values(task, block)
        asked &= seen.sum(axis=-1) > 1
        ages = (np.arange(asked.shape[1]) - _written(block)[:, None])[asked]
        pointed = [_said(model, layer, block, of) @ readout for of in (block, other)]
        right = [_right(block, point, directions, seen) for point in pointed]
        columns = (np.ones_like(asked), *right, 1 / np.maximum(seen.sum(axis=-1), 1))
        counts += [np.bincount(ages, column[asked], task.max_len) for column in columns]
    found = np.flatnonzero(counts[0])
    _, accuracy, control, chance = counts[:, found] / counts[0, found]
    return Held(found, accuracy, control, chance, counts[0, found].astype(np.int64))


def _fitted(model: LanguageModel, layer: int, blocks: Iterator[Documents], directions: Directions) -> Readout:
    """(RᵀR)⁺ RᵀE, where R is what states say, after every step, and E the directions of the values asked for."""
    gram = cross = directions.new_zeros(model.config.d_model, model.config.d_model)
    for docs in blocks:
        rows, steps = np.nonzero(_asked(docs))
        R, E = _said(model, layer, docs, docs)[rows, steps], directions[docs.answer[rows]]
        gram, cross = gram + R.mT @ R, cross + R.mT @ E
    return torch.linalg.pinv(gram, rtol=1e-9, hermitian=True) @ cross


def _said(model: LanguageModel, layer: int, docs: Documents, of: Documents) -> Said:
    """What the states of some documents say at the queries of others; where nothing is asked, nothing."""
    mixer, x = model.get_submodule(f"blocks.{layer}.mixer"), _seen(model, layer, "mixer_in", docs)
    S, last = _seen(model, layer, "mixer.state", of), of.roles["query"] - 1
    said = torch.zeros(x.shape, dtype=torch.float64)
    query = torch.from_numpy(docs.roles["query"]).long().to(x.device)
    x, query = _that_matters(mixer, x, S[np.arange(len(S)), last], query)
    empty = _added(mixer, x, torch.zeros_like(S[:, 0]), query)
    rows, steps = np.nonzero(_asked(docs))
    for i in range(0, len(rows), len(docs)):  # as many at a time as there are documents
        row, step = rows[i : i + len(docs)], steps[i : i + len(docs)]
        S_t = S[row, np.minimum(step, last[row])]
        said[row, step] = (_added(mixer, x[row], S_t, query[row]) - empty[row]).double().cpu()
    if not said.isfinite().all():
        raise InterventionError(f"layer {layer} has states that are no numbers; nothing can be read off it")
    return said


def _added(mixer: nn.Module, x: Stream, state: Tensor, query: Positions) -> Float[Tensor, "n d_model"]:
    """What the mixer adds to the stream at the query, had it this state there."""
    with patch(mixer, {"state": put(state, query)}):
        return take(mixer(x), query, 1)


def _that_matters(mixer: nn.Module, x: Stream, state: Tensor, query: Positions) -> tuple[Few, Positions]:
    """The last tokens up to the query, as few as give the same: given the state, only a short convolution looks back.

    For speed alone. A mixer that looks back otherwise keeps all its tokens.
    """
    whole = _added(mixer, x, state, query)
    for width in (width for width in WIDTHS if width <= int(query.min()) + 1):
        window = query[:, None] + torch.arange(1 - width, 1, device=x.device)
        few, end = gather_reads(x, window), torch.full_like(query, width - 1)
        if (_added(mixer, few, state, end) - whole).abs().max() <= 1e-5 * whole.abs().max():
            return few, end
    return x, query


def _right(
    docs: Documents, pointed: Said, directions: Directions, seen: Bool[ndarray, "n time source"]
) -> Float64[ndarray, "n time"]:
    """1 where the value asked for is the nearest of those seen; where several are equally near, they share it."""
    likeness = (pointed @ directions[docs.tokens].mT).numpy()
    likeness = np.where(seen, likeness, -np.inf)
    nearest = likeness == likeness.max(axis=-1, keepdims=True)
    return nearest[np.arange(len(docs)), :, docs.roles["value"]] / nearest.sum(axis=-1)


def _directions(model: LanguageModel, task: Corruptible) -> Directions:
    """Embeddings, as seen from the middle of the values', of length 1."""
    embedding, values = model.embedding.weight.detach().double().cpu(), task.symbols("value")
    return F.normalize(embedding - embedding[values.start : values.stop].mean(dim=0), dim=-1)


def _written(docs: Documents) -> ndarray:
    """Where the pair asked for is complete."""
    return np.maximum(docs.roles["key"], docs.roles["value"])


def _asked(docs: Documents) -> Bool[ndarray, "n time"]:
    """The steps from there to the query."""
    time = np.arange(docs.tokens.shape[1])
    return (_written(docs)[:, None] <= time) & (time < docs.roles["query"][:, None])


def _seen_values(task: Corruptible, docs: Documents) -> Bool[ndarray, "n time source"]:
    time = np.arange(docs.tokens.shape[1])
    return task.partners(docs, "value")[:, None] & (time <= time[:, None])


@torch.no_grad()
def _seen(model: LanguageModel, layer: int, point: str, docs: Documents) -> Tensor:
    """What passes a site of the layer, with time as its second axis."""
    name, batch = f"blocks.{layer}.{point}", Batch.of(docs, model.embedding.weight.device)
    with record(model, [name]) as seen:
        model(batch.tokens, batch.at)
    return seen[name].movedim(sites(model)[name].time, 1)


def _blocks(docs: Documents, size: int) -> Iterator[Documents]:
    return (docs[start : start + size] for start in range(0, len(docs), size))


def _block_size(model: LanguageModel, layer: int, docs: Documents, memory: int) -> int:
    """How many documents at a time; each has some eight tensors as large as its states."""
    having = [i for i in range(len(model.blocks)) if f"blocks.{i}.mixer.state" in sites(model)]
    if layer not in having:
        known = f"one of {', '.join(map(str, having))}" if having else "in a model with a recurrent state"
        raise InvalidInput(f"layer={layer} must be {known}: {model.config.architecture} has no state there")
    token = torch.zeros(1, 1, model.config.d_model).to(model.embedding.weight)
    mixer = model.get_submodule(f"blocks.{layer}.mixer")
    with record(mixer, ["state"]) as seen, torch.no_grad():
        mixer(token)
    return max(int(memory // (8 * int(docs.lengths.max(initial=1)) * seen["state"].nbytes)), 1)
