"""The contents of a recurrent state: S_t over time, and the pairs that can be read from it.

The mixer itself reads. A document asks for a pair, drawn at random. S_t replaces the state
at the query; the output of the mixer there, minus its output with an empty state, is what S_t tells
about that pair. A least-squares map, fitted on the first half of the documents, takes this to the
embedding of the pair's value. On the second half, the nearest of the values seen so far is right or
wrong.
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
from mecheval.interventions.grid import MEMORY
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

OWN_MIXERS = "only their mixers have a known state"
WIDTHS = (1, 2, 4, 8, 16)  # tokens that a short convolution may see

Stream = Float[Tensor, "n time d_model"]
Shortened = tuple[Float[Tensor, "n window d_model"], Positions]
Output = Float[Tensor, "n d_model"]
Blocks = Iterator[Documents]
States = Float[Tensor, "n time *state"]
Readings = Float64[Tensor, "n time d_model"]
Directions = Float64[Tensor, "vocab d_model"]
Readout = Float64[Tensor, "d_model d_model"]
Mask = Bool[ndarray, "n time"]
Scores = Float64[ndarray, "n time"]
Seen = Bool[ndarray, "n time source"]


@dataclass(frozen=True)
class Held:
    """How often a pair's value is read from the states of `n` documents, by age.

    The age counts tokens since the pair was complete. `control` reads the state of another
    document: it shows what the query knows by itself. `chance` is one in the values seen so far.
    """

    age: Int64[ndarray, " ages"]
    accuracy: Float64[ndarray, " ages"]
    control: Float64[ndarray, " ages"]
    chance: Float64[ndarray, " ages"]
    n: Int64[ndarray, " ages"]


def states(
    model: Model,
    docs: Documents,
    layer: int,
    *,
    memory: int = MEMORY,
) -> Iterator[tuple[Documents, States]]:
    """Yield blocks of documents with their states after each token; padding means nothing.

    Parameters
    ----------
    model
        A model of ours with `mamba` or `delta_net` in the layer.
    docs
        The documents.
    layer
        The layer.
    memory
        Bytes of states at a time, roughly.

    Returns
    -------
    iterator
        Pairs of documents and their states (n, time, head, d_key, d_value).

    Examples
    --------
    >>> from mecheval import LanguageModel, ModelConfig, Recall, states
    >>> task = Recall(pairs=4, vocab=16)
    >>> model = LanguageModel(ModelConfig("delta_net", d_model=8), task.vocab_size)
    >>> [S.shape[:3] for _, S in states(model, task.documents(0, "test", 0, 5), layer=0)]
    [torch.Size([5, 11, 1])]
    """
    model = ours(model, OWN_MIXERS)
    size = _block_size(model, layer, docs, memory)
    return ((block, _record(model, layer, "mixer.state", block)) for block in _blocks(docs, size))


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
    """Measure how long a state holds its pairs, at steps at which several values were seen.

    Parameters
    ----------
    model
        A model of ours with `mamba` or `delta_net` in the layer.
    task
        A recall task of several pairs.
    layer
        The layer.
    documents
        Number of documents; half of them fit the read-out.
    seed
        Seed of the documents.
    split
        Split of the documents.
    memory
        Bytes of states at a time, roughly.

    Returns
    -------
    Held
        By age in tokens: accuracy, that of a control, chance, and n.

    Examples
    --------
    >>> from mecheval import LanguageModel, ModelConfig, Recall, held_pairs
    >>> task = Recall(pairs=4, vocab=16)
    >>> model = LanguageModel(ModelConfig("delta_net", d_model=8), task.vocab_size)
    >>> held_pairs(model, task, layer=0, documents=32).age.tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    model = ours(model, OWN_MIXERS)
    if not (isinstance(task, Corruptible) and getattr(task, "pairs", 0) > 1):
        name = type(task).__name__
        raise InvalidInput(f"task={name} must have documents of several pairs, as recall:pairs=8")
    if documents < 4:
        raise InvalidInput(f"documents={documents} must be at least 4: two halves of two")
    docs = task.documents(seed, split, 0, documents)
    size = _block_size(model, layer, docs, memory)
    first, second = docs[: documents // 2], docs[documents // 2 :]
    others = second[np.roll(np.arange(len(second)), 1)]
    directions = _directions(model, task)
    readout = _fit(model, layer, _blocks(first, size), directions)
    counts = np.zeros((4, task.max_len))
    for block, other in zip(_blocks(second, size), _blocks(others, size), strict=True):
        seen = _seen_values(task, block)
        values = seen.sum(axis=-1)
        counted = _steps(block) & (values > 1)
        ages = (np.arange(counted.shape[1]) - _complete(block)[:, None])[counted]
        own, control = (_readings(model, layer, block, of) @ readout for of in (block, other))
        right = _right(block, own, directions, seen), _right(block, control, directions, seen)
        columns = (np.ones_like(counted), *right, 1 / np.maximum(values, 1))
        counts += [np.bincount(ages, column[counted], task.max_len) for column in columns]
    age = np.flatnonzero(counts[0])
    _, accuracy, control, chance = counts[:, age] / counts[0, age]
    return Held(age, accuracy, control, chance, counts[0, age].astype(np.int64))


def _fit(model: LanguageModel, layer: int, blocks: Blocks, directions: Directions) -> Readout:
    """Return (RᵀR)⁺ RᵀE for readings R of the states and directions E of the values asked for."""
    gram = cross = directions.new_zeros(model.config.d_model, model.config.d_model)
    for docs in blocks:
        rows, steps = np.nonzero(_steps(docs))
        R, E = _readings(model, layer, docs, docs)[rows, steps], directions[docs.answer[rows]]
        gram, cross = gram + R.mT @ R, cross + R.mT @ E
    return torch.linalg.pinv(gram, rtol=1e-9, hermitian=True) @ cross


def _readings(model: LanguageModel, layer: int, docs: Documents, of: Documents) -> Readings:
    """Read the states of some documents at the queries of others; zero at other steps."""
    mixer, x = model.get_submodule(f"blocks.{layer}.mixer"), _record(model, layer, "mixer_in", docs)
    S, last = _record(model, layer, "mixer.state", of), of.roles["query"] - 1
    readings = torch.zeros(x.shape, dtype=torch.float64)
    query = torch.from_numpy(docs.roles["query"]).long().to(x.device)
    x, query = _shorten(mixer, x, S[np.arange(len(S)), last], query)
    empty = _output(mixer, x, torch.zeros_like(S[:, 0]), query)
    rows, steps = np.nonzero(_steps(docs))
    for i in range(0, len(rows), len(docs)):  # as many at a time as there are documents
        row, step = rows[i : i + len(docs)], steps[i : i + len(docs)]
        S_t = S[row, np.minimum(step, last[row])]
        output = _output(mixer, x[row], S_t, query[row])
        readings[row, step] = (output - empty[row]).double().cpu()
    if not readings.isfinite().all():
        raise InterventionError(f"the states of layer {layer} are not finite")
    return readings


def _output(mixer: nn.Module, x: Stream, state: Tensor, query: Positions) -> Output:
    """Return the mixer's output at the query with this state there."""
    with patch(mixer, {"state": put(state, query)}):
        return take(mixer(x), query, 1)


def _shorten(mixer: nn.Module, x: Stream, state: Tensor, query: Positions) -> Shortened:
    """Cut the tokens to the last ones up to the query, as few as give the same output.

    For speed alone: given the state, only a short convolution reads earlier tokens. If no window
    gives the same output, all tokens stay.
    """
    whole = _output(mixer, x, state, query)
    for width in WIDTHS:
        if width > int(query.min()) + 1:
            break
        window = query[:, None] + torch.arange(1 - width, 1, device=x.device)
        short, end = gather_reads(x, window), torch.full_like(query, width - 1)
        if (_output(mixer, short, state, end) - whole).abs().max() <= 1e-5 * whole.abs().max():
            return short, end
    return x, query


def _right(docs: Documents, points: Readings, directions: Directions, seen: Seen) -> Scores:
    """Score 1 where the value asked for is the nearest of those seen; equally near ones share."""
    likeness = (points @ directions[docs.tokens].mT).numpy()
    likeness = np.where(seen, likeness, -np.inf)
    nearest = likeness == likeness.max(axis=-1, keepdims=True)
    return nearest[np.arange(len(docs)), :, docs.roles["value"]] / nearest.sum(axis=-1)


def _directions(model: LanguageModel, task: Corruptible) -> Directions:
    """Return the embeddings relative to the mean of the values', normalised to length 1."""
    embedding, values = model.embedding.weight.detach().double().cpu(), task.symbols("value")
    return F.normalize(embedding - embedding[values.start : values.stop].mean(dim=0), dim=-1)


def _complete(docs: Documents) -> ndarray:
    """Return the position at which the pair asked for is complete."""
    return np.maximum(docs.roles["key"], docs.roles["value"])


def _steps(docs: Documents) -> Mask:
    """Mark the steps from the end of the pair asked for to the token before the query."""
    time = np.arange(docs.tokens.shape[1])
    return (_complete(docs)[:, None] <= time) & (time < docs.roles["query"][:, None])


def _seen_values(task: Corruptible, docs: Documents) -> Seen:
    time = np.arange(docs.tokens.shape[1])
    return task.partners(docs, "value")[:, None] & (time <= time[:, None])


@torch.no_grad()
def _record(model: LanguageModel, layer: int, point: str, docs: Documents) -> Tensor:
    """Return the activations at a site of the layer, with time as the second axis."""
    name, batch = f"blocks.{layer}.{point}", Batch.of(docs, model.embedding.weight.device)
    with record(model, [name]) as seen:
        model(batch.tokens, batch.at)
    return seen[name].movedim(sites(model)[name].time, 1)


def _blocks(docs: Documents, size: int) -> Blocks:
    return (docs[start : start + size] for start in range(0, len(docs), size))


def _block_size(model: LanguageModel, layer: int, docs: Documents, memory: int) -> int:
    """Return how many documents fit: each needs about eight tensors as large as its states."""
    with_state = [i for i in range(len(model.blocks)) if f"blocks.{i}.mixer.state" in sites(model)]
    if layer not in with_state:
        problem = f"layer={layer} of {model.config.architecture} has no recurrent state"
        choose = f"choose one of {', '.join(map(str, with_state))}"
        raise InvalidInput(f"{problem}; {choose if with_state else 'no layer has one'}")
    token = torch.zeros(1, 1, model.config.d_model).to(model.embedding.weight)
    mixer = model.get_submodule(f"blocks.{layer}.mixer")
    with record(mixer, ["state"]) as seen, torch.no_grad():
        mixer(token)
    return max(int(memory // (8 * int(docs.lengths.max(initial=1)) * seen["state"].nbytes)), 1)
