"""Interchange interventions (paper §3): put an activation of one run into another.

    clean       the document as it is           restored    corrupt + clean activation: sufficiency
    corrupt     with one token made wrong       ablated     clean + corrupt activation: necessity
                                                control     corrupt + another document's activation

Clean and corrupt runs are computed once. Roles are stacked along the batch, and the forward pass
resumes at the block of a site, with logits at the query only; a third-party model runs as a whole.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch
from jaxtyping import Bool
from numpy import ndarray

from mecheval.core.errors import InvalidInput
from mecheval.core.options import did_you_mean
from mecheval.interventions.grid import MEMORY, Cell, Condition, Grid, layers_of
from mecheval.interventions.positions import Places, positions
from mecheval.interventions.trace import Trace, is_idle, run_patched, trace
from mecheval.metrics.measurement import Values
from mecheval.metrics.readout import Reader
from mecheval.models.build import Model, is_ours
from mecheval.models.inputs import Batch
from mecheval.models.site import record
from mecheval.models.site import sites as all_sites
from mecheval.tasks.corruption import Kind, Role, corrupt_by_kind
from mecheval.tasks.documents import NO_ANSWER, Documents
from mecheval.tasks.splits import Split
from mecheval.tasks.task import Task

ROLES = ("key", "value", "next_key", "divider", "query")

CellValues = tuple[Cell, Values]


class NoEffectiveCorruption(InvalidInput):
    """No document has another answer after the corruption."""


@torch.no_grad()
def interchange(
    model: Model,
    task: Task,
    sites: Sequence[str] | None = None,
    roles: Sequence[str] = ROLES,
    *,
    corrupt: Role = "key",
    kind: Kind = "resample",
    conditions: Sequence[Condition] = ("restored",),
    documents: int = 320,
    start: int = 0,
    seed: int = 0,
    split: Split = "test",
    memory: int = MEMORY,
    progress: Callable[[int, int], None] | None = None,
) -> Grid:
    """Measure every condition at every site and role.

    Parameters
    ----------
    model
        A trained model, ours or an `ExternalModel`.
    task
        Draws the documents and corrupts them.
    sites
        Where to intervene; by default the inputs and outputs of blocks, mixers and MLPs.
        `sites(model)` lists all.
    roles
        Tokens to intervene at: a role (`key`, `value`, `next_key`, `divider`, `query`), a role
        with an offset (`value+1`) or a position (`@5`).
    corrupt
        The role whose token is corrupted.
    kind
        The corruption: `resample`, `swap` or one that `register_corruption` has added.
    conditions
        `restored` (clean activation in the corrupt run), `ablated` (corrupt activation in the
        clean run), `control` (another document's activation).
    documents
        Number of documents; those count whose answer the corruption changes.
    start
        Number of the first document.
    seed
        Seed of documents and corruption.
    split
        Split of the documents.
    memory
        Bytes of activations at a time, roughly.
    progress
        Called with the number of values that are measured, and of all.

    Returns
    -------
    Grid
        The values of every document in every cell; `rows`, `verdict`, `to_frame` and `plot`
        read it.

    Examples
    --------
    >>> from mecheval import LanguageModel, ModelConfig, Recall, interchange
    >>> task = Recall(pairs=2, vocab=8)
    >>> model = LanguageModel(ModelConfig("mamba", d_model=8), task.vocab_size)
    >>> places = ["blocks.0.mixer.conv_out"], ["key", "value+1"]
    >>> grid = interchange(model, task, *places, documents=16)
    >>> [row.role for row in grid.rows(metrics=["likelihood"])]
    [None, None, 'key', 'value+1']
    """
    names = list(dict.fromkeys(stream_sites(model) if sites is None else sites))
    roles = list(dict.fromkeys(roles))
    _check(model, names, roles, conditions, documents)
    docs = task.documents(seed, split, start, start + documents)
    twins = corrupt_by_kind(task, docs, corrupt, seed, kind)
    clean, wrong = docs[twins.usable], twins.documents[twins.usable]
    n = len(clean)
    if not n:
        problem = f"corrupt={corrupt} by {kind} changes the answer of none of {documents} documents"
        raise NoEffectiveCorruption(problem)
    # a resample may leave some documents without an answer, so that it has no counterfactual
    answered = kind != "resample" and bool((wrong.answer != NO_ANSWER).all())
    longest = clean.lengths.argmax()
    stacked = memory // _bytes_per_row(model, clean[longest : longest + 1], names)
    size = min(max(stacked // len(roles), 2), n)
    lead = int("control" in conditions)  # a control takes from the document before, so it leads
    ends: list[tuple[Values, Values]] = []
    cells: dict[Cell, list[Values]] = {}
    done, total = 0, n * len(set(conditions)) * len(names) * len(roles)
    for first in range(0, n, size):
        rows = np.arange(first - lead, min(first + size, n))
        block = _Block.run(model, clean[rows], wrong[rows], names, roles, answered)
        ends.append(block.ends)
        for cell, values in block.cells(conditions, max(stacked // size, 1)):
            cells.setdefault(cell, []).append(values)
            done += len(rows) - lead
            if progress:
                progress(done, total)
    clean_end, corrupt_end = (_concatenate(parts, lead) for parts in zip(*ends, strict=True))
    joined = {cell: _concatenate(parts, lead) for cell, parts in cells.items()}
    layers = layers_of(all_sites(model))
    return Grid(corrupt, split, clean_end, corrupt_end, joined, layers, model.kinds)


def stream_sites(model: Model) -> list[str]:
    """Return the sites of the paper's grid: inputs and outputs of blocks, mixers and MLPs.

    Of a third-party model these are all its sites outside of mixers.
    """
    outside = ("embed_out", "final_in")
    return [name for name in all_sites(model) if name not in outside and ".mixer." not in name]


@dataclass(frozen=True)
class _Block:
    """Some documents with their clean and corrupt runs."""

    model: Model
    clean_docs: Documents
    names: Sequence[str]
    places: Mapping[str, Places]
    clean: Trace
    corrupt: Trace
    reader: Reader
    ends: tuple[Values, Values]

    @classmethod
    def run(
        cls,
        model: Model,
        clean_docs: Documents,
        wrong_docs: Documents,
        names: Sequence[str],
        roles: Sequence[str],
        answered: bool,
    ) -> "_Block":
        places = {role: positions(clean_docs, role) for role in roles}
        clean, corrupt = (trace(model, docs, names, places) for docs in (clean_docs, wrong_docs))
        others = wrong_docs.answer if answered else None
        reader = Reader.of(clean.logits, clean_docs.answer, others)
        ends = reader.read(clean.logits), reader.read(corrupt.logits)
        return cls(model, clean_docs, names, places, clean, corrupt, reader, ends)

    def cells(self, conditions: Sequence[Condition], at_once: int) -> Iterator[CellValues]:
        """Yield the read-outs of every cell, with so many roles stacked at once."""
        for condition in dict.fromkeys(conditions):
            usable = {role: self._usable(role, condition) for role in self.places}
            for name in self.names:
                for role, values in self._read_site(condition, name, at_once):
                    masked = {m: np.where(usable[role], v, np.nan) for m, v in values.items()}
                    yield (condition, name, role), masked

    def _read_site(
        self, condition: Condition, name: str, at_once: int
    ) -> Iterator[tuple[str, Values]]:
        """Yield each role with the read-outs of its patched run, or of the base run if equal."""
        restores = condition != "ablated"
        base, source = (self.corrupt, self.clean) if restores else (self.clean, self.corrupt)
        roles = list(self.places)
        for start in range(0, len(roles), at_once):
            few = roles[start : start + at_once]
            new = {}
            for role in few:
                value = source.values[name, role]
                if condition == "control":
                    value = value.roll(1, dims=0)
                # the same value, as at every token before the corrupted one, changes nothing
                same = torch.equal(value, base.values[name, role])
                if not same and not is_idle(self.model, name, self.places[role], base):
                    new[role] = value
            logits = run_patched(self.model, name, base, new, self.places) if new else ()
            read = {role: self.reader.read(z) for role, z in zip(new, logits, strict=True)}
            yield from ((role, read.get(role, self.ends[restores])) for role in few)

    def _usable(self, role: str, condition: Condition) -> Bool[ndarray, " n"]:
        """Mark documents that have the place; for a control, the one before must have it, too."""
        inside = self.places[role][1]
        if condition != "control":
            return inside
        index = self.clean_docs.index
        return inside & np.roll(inside, 1) & (index != np.roll(index, 1))


def _check(
    model: Model,
    names: Sequence[str],
    roles: Sequence[str],
    conditions: Sequence[str],
    documents: int,
) -> None:
    lists = {"sites": names, "roles": roles, "conditions": conditions}
    problems = [f"{option} must name at least one" for option, items in lists.items() if not items]
    if documents < 1:
        problems.append(f"documents={documents} must be at least 1")
    known, allowed = all_sites(model), get_args(Condition)
    for name in names:
        if name not in known:
            problems.append(f"no site {name!r}{did_you_mean(name, known)}")
    for condition in conditions:
        if condition not in allowed:
            problems.append(f"condition={condition!r} must be one of {', '.join(allowed)}")
    if problems:
        raise InvalidInput(problems)


def _bytes_per_row(model: Model, docs: Documents, names: Sequence[str]) -> int:
    """Estimate the memory of one document in a stacked pass: streams, logits and sites.

    The stream of a third-party model counts as its widest site, with logits at every position.
    """
    batch = Batch.of(docs)
    with record(model, names if is_ours(model) else list(all_sites(model))) as seen:
        logits = model(batch.tokens, batch.at)
    largest = max((tensor.nbytes for tensor in seen.values()), default=0)
    stream, reads = largest, docs.tokens.shape[1]
    if is_ours(model):
        stream, reads = docs.tokens.size * model.config.d_model * logits.element_size(), 1
    return 20 * stream + 4 * reads * logits.shape[-1] * logits.element_size() + 6 * largest


def _concatenate(parts: Sequence[dict[str, ndarray]], lead: int) -> Values:
    """Join blocks end to end, each without the rows that lead it."""
    return {name: np.concatenate([part[name][lead:] for part in parts]) for name in parts[0]}
