"""Interchange interventions (paper §3): the activation of one run, at one site and one token, put into another run.

    clean       the document as it is              restored    corrupt, with the clean activation put in: sufficiency
    corrupt     one token of it made wrong         ablated     clean, with the corrupt activation put in: necessity
                                                   control     corrupt, with another document's clean activation put in

Clean and corrupt runs are computed once. All tokens that are asked about are stacked along the batch, and the
forward pass is resumed from the block that a site is in, with logits at the query only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray
from torch import Tensor

from mecheval.errors import InvalidInput, MechevalError
from mecheval.interventions.places import positions
from mecheval.models.edits import put, take
from mecheval.models.language_model import LanguageModel
from mecheval.models.site import Edit, Site, patch, record
from mecheval.models.site import sites as all_sites
from mecheval.options import nearest
from mecheval.tasks.batch import Documents
from mecheval.tasks.corruption import Kind, Role
from mecheval.tasks.held_out import Split
from mecheval.tasks.task import Task
from mecheval.training.batches import Batch

Condition = Literal["restored", "ablated", "control"]
METRICS = ("likelihood", "accuracy", "logit", "kl")
MEMORY = 2**28  # bytes of activations at a time
ROLES = ("key", "value", "next_key", "divider", "query")

Places = tuple[Int64[ndarray, " n"], Bool[ndarray, " n"]]  # a position in each document, and which have it

Values = dict[str, Float64[ndarray, " n"]]  # by metric, a number for each document
Cell = tuple[Condition, str, str]  # condition, site, role


class NotHit(MechevalError):
    """An intervention did not do what it says: its number would mean nothing."""


@dataclass(frozen=True)
class Grid:
    """What every document did: clean, corrupt, and in every cell. NaN where it has no such token."""

    corrupted: str
    split: str
    clean: Values
    corrupt: Values
    cells: dict[Cell, Values]


@torch.no_grad()
def interchange(
    model: LanguageModel,
    task: Task,
    sites: Sequence[str] | None = None,
    roles: Sequence[str] = ROLES,
    *,
    corrupt: Role = "key",
    kind: Kind = "resample",
    conditions: Sequence[Condition] = ("restored",),
    documents: int = 320,
    seed: int = 0,
    split: Split = "test",
    memory: int = MEMORY,
    progress: Callable[[int, int], None] | None = None,
) -> Grid:
    """Every condition at every site and role, on the documents whose answer the corruption took away."""
    names = stream_sites(model) if sites is None else list(sites)
    _check(model, names, conditions)
    docs = task.documents(seed, split, 0, documents)
    twins = task.corrupt(docs, corrupt, seed, kind)
    pair = docs[twins.usable], twins.documents[twins.usable]
    if not twins.usable.any():
        raise InvalidInput(f"corrupt={corrupt} by {kind} leaves none of {documents} documents with another answer")
    size = max(memory // (len(roles) * _bytes_of_a_row(model, pair[0][:1], names)), 2)
    blocks = []
    for start in range(0, len(pair[0]), size):
        clean, wrong = (side[start : start + size] for side in pair)
        blocks.append(_block(model, clean, wrong, names, roles, conditions))
        if progress:
            progress(min(start + size, len(pair[0])), len(pair[0]))
    cells = {cell: _joined([block.cells[cell] for block in blocks]) for cell in blocks[0].cells}
    ends = (_joined([block.clean for block in blocks]), _joined([block.corrupt for block in blocks]))
    return Grid(corrupt, split, *ends, cells)


def stream_sites(model: LanguageModel) -> list[str]:
    """Inputs and outputs of blocks, mixers and MLPs: the sites of the paper's grid."""
    return [name for name in all_sites(model) if name.startswith("blocks.") and ".mixer." not in name]


def layer_of(site: str) -> int | None:
    """The block a site is in; None before and behind the blocks."""
    return int(site.split(".")[1]) if site.startswith("blocks.") else None


@dataclass
class _Trace:
    """One forward pass: what went into every block, what passed the sites at the places, and what came out."""

    inputs: list[Tensor]
    values: dict[tuple[str, str], Tensor]
    log_p: Tensor
    scores: Values


def _block(
    model: LanguageModel,
    clean: Documents,
    wrong: Documents,
    names: Sequence[str],
    roles: Sequence[str],
    conditions: Sequence[Condition],
) -> Grid:
    answers = torch.from_numpy(clean.answer).long()
    places = {role: positions(clean, role) for role in roles}
    whole = _trace(model, clean, names, places, answers, None)
    broken = _trace(model, wrong, names, places, answers, whole.log_p)
    cells: dict[Cell, Values] = {}
    for condition in conditions:
        base, source = (whole, broken) if condition == "ablated" else (broken, whole)
        for name in names:
            values = {role: source.values[name, role] for role in roles}
            if condition == "control":
                values = {role: value.roll(1, dims=0) for role, value in values.items()}
            logits = _patched(model, name, base, values, places, clean)
            for role, own in zip(roles, logits.chunk(len(roles)), strict=True):
                scores = _scores(own, answers, whole.log_p)
                missing = ~places[role][1]
                cells[condition, name, role] = {m: np.where(missing, np.nan, v) for m, v in scores.items()}
    return Grid("", "", whole.scores, broken.scores, cells)


def _trace(
    model: LanguageModel,
    docs: Documents,
    names: Sequence[str],
    places: Mapping[str, Places],
    answers: Tensor,
    reference: Tensor | None,
) -> _Trace:
    """Sites that are materialised have a pass of their own: looking at them changes roundings elsewhere."""
    batch, known = Batch.of(docs), all_sites(model)
    streams = [f"blocks.{layer}.block_in" for layer in range(len(model.blocks))] + ["final_in"]
    values: dict[tuple[str, str], Tensor] = {}

    def keep(name: str) -> Edit:
        def edit(x: Tensor, site: Site) -> Tensor:
            for role, (where, _) in places.items():
                values[name, role] = take(x, torch.from_numpy(where), site.time)
            return x

        return edit

    apart = [name for name in names if known[name].materialised]
    for name in apart:
        with patch(model, {name: keep(name)}):
            model(batch.tokens, batch.at)
    with record(model, streams) as seen, patch(model, {name: keep(name) for name in names if name not in apart}):
        logits = model(batch.tokens, batch.at)[:, 0]
    log_p = logits.double().log_softmax(dim=-1)
    scores = _scores(logits, answers, log_p if reference is None else reference)
    return _Trace([seen[stream] for stream in streams], values, log_p, scores)


def _patched(
    model: LanguageModel,
    name: str,
    base: _Trace,
    values: Mapping[str, Tensor],
    places: Mapping[str, Places],
    docs: Documents,
) -> Tensor:
    """Logits at the query with the values put in, role by role one below the other."""
    where = torch.cat([torch.from_numpy(places[role][0]) for role in values])
    new = torch.cat(list(values.values()))
    at = torch.from_numpy(docs.queries[:, :1]).long().repeat(len(values), 1)
    layer = layer_of(name)
    start = 0 if name == "embed_out" else len(model.blocks) if layer is None else layer
    hits: list[None] = []

    def edit(x: Tensor, site: Site) -> Tensor:
        hits.append(None)
        changed = put(new, where)(x, site)
        if torch.equal(changed, x) and not torch.equal(take(x, where, site.time), new.to(x)):
            raise NotHit(f"the patch at {name} changed nothing although what was put in is different")
        return changed

    stream = base.inputs[start].repeat(len(values), 1, 1)
    with patch(model, {name: edit}):
        if name == "embed_out":
            stream = model.embed_out(stream)
        logits = model.resume(start, stream, at)[:, 0]
    if len(hits) != 1:
        raise NotHit(f"the patch at {name} was hit {len(hits)} times; it must be hit once")
    return logits


def _scores(logits: Tensor, answers: Tensor, clean: Tensor) -> Values:
    """`clean` are the logarithms of the probabilities that the clean run gives."""
    if not logits.isfinite().all():
        raise NotHit("the model gives logits that are no numbers; nothing can be read off it")
    log_p = logits.double().log_softmax(dim=-1)
    right = answers[:, None]
    found = {
        "likelihood": log_p.gather(1, right)[:, 0].exp(),
        "accuracy": (logits.argmax(dim=-1) == answers).double(),
        "logit": logits.gather(1, right)[:, 0].double(),
        "kl": (clean.exp() * (clean - log_p)).sum(dim=-1),
    }
    return {name: value.numpy() for name, value in found.items()}


def _check(model: LanguageModel, names: Sequence[str], conditions: Sequence[str]) -> None:
    known = all_sites(model)
    problems = [f"no site {name!r}{nearest(name, known)}" for name in names if name not in known]
    allowed = get_args(Condition)
    problems += [f"condition={c!r} must be one of {', '.join(allowed)}" for c in conditions if c not in allowed]
    if problems:
        raise InvalidInput(problems)


def _bytes_of_a_row(model: LanguageModel, docs: Documents, names: Sequence[str]) -> int:
    """What one document takes in a stacked pass, roughly: the stream some twenty times, the sites a few times."""
    batch = Batch.of(docs)
    with record(model, names) as seen:
        model(batch.tokens, batch.at)
    largest = max(tensor.numel() for tensor in seen.values())
    return 4 * (20 * docs.tokens.size * model.config.d_model + 6 * largest + 4 * model.vocab_size)


def _joined(parts: Sequence[Values]) -> Values:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
