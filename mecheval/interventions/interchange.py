"""Interchange interventions (paper §3): the activation of one run, at one site and one token, put into another run.

    clean       the document as it is              restored    corrupt, with the clean activation put in: sufficiency
    corrupt     one token of it made wrong         ablated     clean, with the corrupt activation put in: necessity
                                                   control     corrupt, with another document's clean activation put in

Clean and corrupt runs are computed once. All tokens that are asked about are stacked along the batch, and the
forward pass is resumed from the block that a site is in, with logits at the query only; that of a stranger's model is
run as a whole.
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
from mecheval.interventions.grid import Cell, Grid
from mecheval.interventions.options import MEMORY, Condition
from mecheval.interventions.positions import Places, positions
from mecheval.interventions.trace import Trace, is_idle, patched, traced
from mecheval.metrics.measurement import Values
from mecheval.metrics.readout import Reader
from mecheval.models.build import Model, resumes
from mecheval.models.inputs import Batch
from mecheval.models.site import record
from mecheval.models.site import sites as all_sites
from mecheval.tasks.corruption import Kind, Role
from mecheval.tasks.documents import Documents
from mecheval.tasks.splits import Split
from mecheval.tasks.task import Task

ROLES = ("key", "value", "next_key", "divider", "query")


class NothingToLose(InvalidInput):
    """No corruption of these documents gives another answer."""


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
    """Every condition at every site and role, on the documents from `start` on whose answer the corruption took away.

    `memory` is how many bytes of activations may be there at a time, roughly: it bounds how much is stacked.
    `progress` is told how many of the grid's numbers are there, and how many there will be.
    """
    names, roles = list(dict.fromkeys(stream_sites(model) if sites is None else sites)), list(dict.fromkeys(roles))
    _check(model, names, roles, conditions, documents)
    docs = task.documents(seed, split, start, start + documents)
    twins = task.corrupt(docs, corrupt, seed, kind)
    clean, wrong = docs[twins.usable], twins.documents[twins.usable]
    if not twins.usable.any():
        raise NothingToLose(f"corrupt={corrupt} by {kind} leaves none of {documents} documents with another answer")
    n, longest = len(clean), clean.lengths.argmax()
    stacked = memory // _bytes_of_a_row(model, clean[longest : longest + 1], names)
    size = min(max(stacked // len(roles), 2), n)
    lead = int("control" in conditions)  # a control takes what the document before has: so begins its block
    ends: list[tuple[Values, Values]] = []
    cells: dict[Cell, list[Values]] = {}
    done, total = 0, n * len(set(conditions)) * len(names) * len(roles)
    for first in range(0, n, size):
        rows = np.arange(first - lead, min(first + size, n))
        block = _Block.of(model, clean[rows], wrong[rows], names, roles, kind)
        ends.append(block.ends)
        for cell, values in block.cells(conditions, max(stacked // size, 1)):
            cells.setdefault(cell, []).append(values)
            done += len(rows) - lead
            if progress:
                progress(done, total)
    clean_end, corrupt_end = (_joined(parts, lead) for parts in zip(*ends, strict=True))
    return Grid(corrupt, split, clean_end, corrupt_end, {cell: _joined(parts, lead) for cell, parts in cells.items()})


def stream_sites(model: Model) -> list[str]:
    """Inputs and outputs of blocks, mixers and MLPs: the sites of the paper's grid; all that a stranger's model names
    outside of mixers."""
    return [name for name in all_sites(model) if name not in ("embed_out", "final_in") and ".mixer." not in name]


@dataclass(frozen=True)
class _Block:
    """Some documents, run clean and corrupt."""

    model: Model
    clean: Documents
    names: Sequence[str]
    places: Mapping[str, Places]
    whole: Trace
    broken: Trace
    reader: Reader
    ends: tuple[Values, Values]

    @classmethod
    def of(
        cls,
        model: Model,
        clean: Documents,
        wrong: Documents,
        names: Sequence[str],
        roles: Sequence[str],
        kind: Kind,
    ) -> "_Block":
        places = {role: positions(clean, role) for role in roles}
        whole, broken = (traced(model, docs, names, places) for docs in (clean, wrong))
        reader = Reader.of(whole.logits, clean.answer, wrong.answer if kind == "swap" else None)
        ends = reader.read(whole.logits), reader.read(broken.logits)
        return cls(model, clean, names, places, whole, broken, reader, ends)

    def cells(self, conditions: Sequence[Condition], at_a_time: int) -> Iterator[tuple[Cell, Values]]:
        """So many roles at a time are stacked."""
        for condition in dict.fromkeys(conditions):
            there = {role: self._there(role, condition) for role in self.places}
            for name in self.names:
                for role, found in self._found(condition, name, at_a_time):
                    yield (condition, name, role), {m: np.where(there[role], v, np.nan) for m, v in found.items()}

    def _found(self, condition: Condition, name: str, at_a_time: int) -> Iterator[tuple[str, Values]]:
        restores = condition != "ablated"
        base, source = (self.broken, self.whole) if restores else (self.whole, self.broken)
        roles = list(self.places)
        for few in (roles[i : i + at_a_time] for i in range(0, len(roles), at_a_time)):
            busy = [role for role in few if not is_idle(self.model, name, self.places[role], base)]
            values = {role: source.values[name, role] for role in busy}
            if condition == "control":
                values = {role: value.roll(1, dims=0) for role, value in values.items()}
            # what is there already, as at every token before the corrupted one, changes nothing
            values = {role: value for role, value in values.items() if not torch.equal(value, base.values[name, role])}
            logits = patched(self.model, name, base, values, self.places) if values else ()
            read = {role: self.reader.read(own) for role, own in zip(values, logits, strict=True)}
            yield from ((role, read.get(role, self.ends[restores])) for role in few)

    def _there(self, role: str, condition: Condition) -> Bool[ndarray, " n"]:
        """Which documents have the place and, for a control, another document before them that has it, too."""
        here = self.places[role][1]
        if condition != "control":
            return here
        return here & np.roll(here, 1) & (self.clean.index != np.roll(self.clean.index, 1))


def _check(model: Model, names: Sequence[str], roles: Sequence[str], conditions: Sequence[str], documents: int) -> None:
    known, asked = all_sites(model), {"sites": names, "roles": roles, "conditions": conditions}
    empty = [f"{what} must name at least one" for what, given in asked.items() if not given]
    empty += [f"documents={documents} must be at least 1"] if documents < 1 else []
    problems = [f"no site {name!r}{did_you_mean(name, known)}" for name in names if name not in known]
    allowed = get_args(Condition)
    problems += [f"condition={c!r} must be one of {', '.join(allowed)}" for c in conditions if c not in allowed]
    if empty or problems:
        raise InvalidInput(empty + problems)


def _bytes_of_a_row(model: Model, docs: Documents, names: Sequence[str]) -> int:
    """What one document takes in a stacked pass, roughly: the stream some twenty times, the sites a few times.

    A stranger's stream is taken to be as wide as the widest of its sites; its logits may be there at every position.
    """
    batch = Batch.of(docs)
    with record(model, names if resumes(model) else list(all_sites(model))) as seen:
        logits = model(batch.tokens, batch.at)
    largest = max((tensor.nbytes for tensor in seen.values()), default=0)
    stream, reads = largest, docs.tokens.shape[1]
    if resumes(model):
        stream, reads = docs.tokens.size * model.config.d_model * logits.element_size(), 1
    return 20 * stream + 4 * reads * logits.shape[-1] * logits.element_size() + 6 * largest


def _joined(parts: Sequence[dict[str, ndarray]], lead: int) -> dict[str, ndarray]:
    """Blocks end to end, each without the rows that lead it."""
    return {name: np.concatenate([part[name][lead:] for part in parts]) for name in parts[0]}
