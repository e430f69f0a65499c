"""The grid of a deep model: layers by roles, measured in parts that are kept, so that it resumes.

Restoring the input of a block changes only the tokens from the restored one on. A model that can
continue behind a prefix it has read (`read_prefix`, `resume_behind`) computes no other ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy import ndarray

from mecheval.core.errors import InvalidInput
from mecheval.core.spec import canonical_json, digest
from mecheval.interventions.depth_parts import model_digest, read_part, write_part
from mecheval.interventions.grid import MEMORY, Cell, Grid, layers_of
from mecheval.interventions.interchange import NoEffectiveCorruption, interchange
from mecheval.interventions.positions import positions
from mecheval.interventions.verdict import MEANS, verdict_sites
from mecheval.metrics.measurement import Values
from mecheval.metrics.readout import Reader
from mecheval.models.build import Model
from mecheval.models.inputs import Batch
from mecheval.models.site import record, sites
from mecheval.tasks.corruption import Kind, corrupt_by_kind
from mecheval.tasks.documents import NO_ANSWER, Documents
from mecheval.tasks.splits import Split
from mecheval.tasks.task import Task

ROLES = tuple(MEANS)  # those that a verdict reads
CHUNK = 32  # documents that are measured and kept together


@dataclass(frozen=True)
class _Settings:
    """All that determines the values of a part."""

    model: Any
    task: Any
    roles: tuple[str, ...]
    kind: Kind
    seed: int
    split: Split
    memory: int
    names: tuple[str, ...]
    made: str  # checksum of the model

    @property
    def cells(self) -> list[Cell]:
        return [("restored", name, role) for name in self.names for role in self.roles]

    def key(self, start: int, stop: int) -> str:
        task = getattr(self.task, "key", None) or repr(self.task)
        rest = [self.kind, self.seed, self.split, start, stop, self.made]
        return digest(canonical_json([task, list(self.names), list(self.roles), *rest]))[:16]


def depth_grid(
    model: Model,
    task: Task,
    roles: Sequence[str] = ROLES,
    *,
    documents: int = 320,
    kind: Kind = "resample",
    seed: int = 0,
    split: Split = "test",
    folder: Path | None = None,
    memory: int = MEMORY,
    progress: Callable[[int, int], None] | None = None,
) -> Grid:
    """Measure every block's input at every role, a few documents at a time.

    Parameters
    ----------
    model
        A model with the sites of a verdict.
    task
        Draws the documents and corrupts their keys.
    roles
        Tokens at which the clean activation is restored.
    documents
        Number of documents; those count whose answer the corruption changes.
    kind
        The corruption.
    seed
        Seed of documents and corruption.
    split
        Split of the documents.
    folder
        Where finished parts are kept; the same call resumes from them.
    memory
        Bytes of activations at a time, roughly.
    progress
        Called with the number of documents that are measured, and of all.

    Returns
    -------
    Grid
        As `interchange` returns it, with `depth_sites`.

    Examples
    --------
    >>> from mecheval import LanguageModel, ModelConfig, Recall, depth_grid
    >>> task = Recall(pairs=2, vocab=8)
    >>> model = LanguageModel(ModelConfig("attention", d_model=8, layers=3), task.vocab_size)
    >>> depth_grid(model, task, documents=40).verdict().mechanism
    'unsolved'
    """
    names = depth_sites(layers_of(sites(model)))
    if missing := [name for name in names if name not in sites(model)]:
        raise InvalidInput(f"model={model.name} lacks the sites {', '.join(missing)}")
    made = model_digest(model) if folder else ""
    settings = _Settings(model, task, tuple(roles), kind, seed, split, memory, names, made)
    grids = []
    for start in range(0, documents, CHUNK):
        stop = min(start + CHUNK, documents)
        if part := _part(settings, start, stop, folder):
            grids.append(part)
        if progress:
            progress(stop, documents)
    if not grids:
        raise NoEffectiveCorruption(f"kind={kind} changes the answer of none of {documents}")
    return _join(grids, settings.cells)


def depth_sites(layers: int) -> tuple[str, ...]:
    """Return the inputs of all blocks, and what else a verdict reads."""
    return "blocks.0.block_in", *verdict_sites(layers)


def _part(settings: _Settings, start: int, stop: int, folder: Path | None) -> Grid | None:
    """Return the grid of some documents, from the folder if it is there; None without any."""
    place = folder / f"part-{start:06}-{settings.key(start, stop)}.safetensors" if folder else None
    layers, kinds = layers_of(sites(settings.model)), settings.model.kinds
    kept = settings.split, layers, kinds, settings.cells
    if place and (part := read_part(place, *kept)):
        return part
    try:
        grid = _measure(settings, start, stop)
    except NoEffectiveCorruption:
        return None
    if place is None:
        return grid
    write_part(place, grid)
    return read_part(place, *kept) or grid  # metrics in the order of a part that was kept


def _measure(settings: _Settings, start: int, stop: int) -> Grid:
    model, task, names = settings.model, settings.task, settings.names
    if not getattr(model, "reads_prefixes", False):
        return _whole(settings, names, start, stop)
    boundaries = [name for name in names if name.endswith("block_in")]
    ends = _whole(settings, [name for name in names if name not in boundaries], start, stop)
    docs = task.documents(settings.seed, settings.split, start, stop)
    twins = corrupt_by_kind(task, docs, "key", settings.seed, settings.kind)
    clean, wrong = docs[twins.usable], twins.documents[twins.usable]
    cells = _restore_inputs(model, clean, wrong, boundaries, settings.roles, ends)
    return replace(ends, cells={**cells, **ends.cells})


def _whole(settings: _Settings, names: Sequence[str], start: int, stop: int) -> Grid:
    return interchange(
        settings.model,
        settings.task,
        names,
        settings.roles,
        kind=settings.kind,
        documents=stop - start,
        start=start,
        seed=settings.seed,
        split=settings.split,
        memory=settings.memory,
    )


@torch.no_grad()
def _restore_inputs(
    model: Any,
    clean: Documents,
    wrong: Documents,
    names: Sequence[str],
    roles: Sequence[str],
    ends: Grid,
) -> dict[Cell, Values]:
    """Restore the inputs of blocks; documents with the token at the same place run together."""
    batch, other = Batch.of(clean), Batch.of(wrong)
    with record(model, names) as right:
        logits = model(batch.tokens, batch.at[:, :1])[:, 0]
    with record(model, names) as corrupt:
        model(other.tokens, other.at[:, :1])
    answered = bool((wrong.answer != NO_ANSWER).all()) and "counterfactual" in ends.clean
    reader_answers = wrong.answer if answered else None
    cells: dict[Cell, Values] = {}
    for role in roles:
        where, inside = positions(clean, role)
        for name in names:
            base = {m: np.where(inside, v, np.nan) for m, v in ends.corrupt.items()}
            cells["restored", name, role] = base
        for place in np.unique(where[inside]).tolist():
            rows = np.flatnonzero(inside & (where == place))
            part = torch.from_numpy(rows)
            others = None if reader_answers is None else reader_answers[rows]
            reader = Reader.of(logits[part], clean.answer[rows], others)
            prefix = model.read_prefix(other.tokens[part, :place])
            for name in names:
                x = corrupt[name][part, place:].clone()
                new = right[name][part, place]
                if torch.equal(x[:, 0], new):
                    continue
                x[:, 0] = new
                at = batch.at[part, :1] - place
                read = model.resume_behind(prefix, int(name.split(".")[1]), x, at)[:, 0]
                for metric, values in reader.read(read).items():
                    cells["restored", name, role][metric][rows] = values
    return cells


def _join(grids: Sequence[Grid], order: Sequence[Cell]) -> Grid:
    """Return one grid with the documents of several, and its cells in an order."""
    first = grids[0]
    clean, corrupt = (_stack([getattr(g, end) for g in grids]) for end in ("clean", "corrupt"))
    cells = {cell: _stack([grid.cells[cell] for grid in grids]) for cell in order}
    return Grid("key", first.split, clean, corrupt, cells, first.layers, first.kinds)


def _stack(parts: Sequence[dict[str, ndarray]]) -> Values:
    return {metric: np.concatenate([part[metric] for part in parts]) for metric in parts[0]}
