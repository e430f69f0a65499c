"""Interchange interventions (paper §3): the activation of one run, at one site and one token, put into another run.

    clean       the document as it is              restored    corrupt, with the clean activation put in: sufficiency
    corrupt     one token of it made wrong         ablated     clean, with the corrupt activation put in: necessity
                                                   control     corrupt, with another document's clean activation put in

Clean and corrupt runs are computed once. All tokens that are asked about are stacked along the batch, and the
forward pass is resumed from the block that a site is in, with logits at the query only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch
from jaxtyping import Bool, Int64
from numpy import ndarray
from torch import Tensor

from mecheval.errors import InvalidInput, MechevalError
from mecheval.interventions.options import Condition
from mecheval.interventions.places import positions
from mecheval.interventions.records import Cell, Grid, Values, layer_of
from mecheval.models.edits import put, take
from mecheval.models.language_model import Block, LanguageModel
from mecheval.models.layers import gathered
from mecheval.models.site import Edit, Site, patch, record
from mecheval.models.site import sites as all_sites
from mecheval.options import nearest
from mecheval.tasks.batch import Documents
from mecheval.tasks.corruption import Kind, Role
from mecheval.tasks.held_out import Split
from mecheval.tasks.task import Task
from mecheval.training.batches import Batch

BEHIND_MIXER = ("mixer_out", "mlp_in", "mlp_out", "block_out")
MEMORY = 2**28  # bytes of activations at a time
ROLES = ("key", "value", "next_key", "divider", "query")

Places = tuple[Int64[ndarray, " n"], Bool[ndarray, " n"]]  # a position in each document, and which have it


class NothingToLose(InvalidInput):
    """No corruption of these documents gives another answer."""


class NotHit(MechevalError):
    """An intervention did not do what it says: its number would mean nothing."""


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
    names, roles = list(dict.fromkeys(stream_sites(model) if sites is None else sites)), list(dict.fromkeys(roles))
    _check(model, names, roles, conditions, documents)
    docs = task.documents(seed, split, 0, documents)
    twins = task.corrupt(docs, corrupt, seed, kind)
    pair = docs[twins.usable], twins.documents[twins.usable]
    if not twins.usable.any():
        raise NothingToLose(f"corrupt={corrupt} by {kind} leaves none of {documents} documents with another answer")
    n, longest = len(pair[0]), pair[0].lengths.argmax()
    size = max(memory // (len(roles) * _bytes_of_a_row(model, pair[0][longest : longest + 1], names)), 2)
    lead = int("control" in conditions)  # a control takes what the document before has: so begins its block
    blocks = []
    for start in range(0, n, size):
        rows = np.arange(start - lead, min(start + size, n))
        blocks.append(_block(model, pair[0][rows], pair[1][rows], names, roles, conditions))
        if progress:
            progress(min(start + size, n), n)
    cells = {cell: _joined([block.cells[cell] for block in blocks], lead) for cell in blocks[0].cells}
    ends = (_joined([block.clean for block in blocks], lead), _joined([block.corrupt for block in blocks], lead))
    return Grid(corrupt, split, *ends, cells)


def stream_sites(model: LanguageModel) -> list[str]:
    """Inputs and outputs of blocks, mixers and MLPs: the sites of the paper's grid."""
    return [name for name in all_sites(model) if name.startswith("blocks.") and ".mixer." not in name]


@dataclass
class _Trace:
    """One forward pass: what went into every block and came out of its mixer, what passed the sites at the places, and
    what came out at the query."""

    inputs: list[Tensor]
    mixed: list[Tensor]
    values: dict[tuple[str, str], Tensor]
    clean: "_Clean"
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
    broken = _trace(model, wrong, names, places, answers, whole.clean)
    cells: dict[Cell, Values] = {}
    for condition in conditions:
        base, source = (whole, broken) if condition == "ablated" else (broken, whole)
        for name in names:
            idle = [role for role in roles if _is_idle(model, name, places[role], clean)]
            values = {role: source.values[name, role] for role in roles if role not in idle}
            there = {role: place[1] for role, place in places.items()}
            if condition == "control":
                values = {role: value.roll(1, dims=0) for role, value in values.items()}
                another = clean.index != np.roll(clean.index, 1)
                there = {role: here & np.roll(here, 1) & another for role, here in there.items()}
            found = {role: base.scores for role in idle}
            if values:
                logits = _patched(model, name, base, values, places, clean).chunk(len(values))
                found |= {role: _scores(own, answers, whole.clean) for role, own in zip(values, logits, strict=True)}
            for role in roles:
                cells[condition, name, role] = {m: np.where(there[role], v, np.nan) for m, v in found[role].items()}
    return Grid("", "", whole.scores, broken.scores, cells)


def _trace(
    model: LanguageModel,
    docs: Documents,
    names: Sequence[str],
    places: Mapping[str, Places],
    answers: Tensor,
    reference: "_Clean | None",
) -> _Trace:
    """Sites that are materialised have a pass of their own: looking at them changes roundings elsewhere."""
    batch, known = Batch.of(docs), all_sites(model)
    inputs = [f"blocks.{layer}.block_in" for layer in range(len(model.blocks))] + ["final_in"]
    mixed = [f"blocks.{layer}.mixer_out" for layer in range(len(model.blocks))]
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
    with record(model, inputs + mixed) as seen, patch(model, {name: keep(name) for name in names if name not in apart}):
        logits = model(batch.tokens, batch.at)[:, 0]
    for name in names:
        if (name, next(iter(places))) not in values:
            raise NotHit(f"the patch at {name} was hit 0 times; it must be hit once")
    clean = reference or _Clean.of(logits)
    scores = _scores(logits, answers, clean)
    return _Trace([seen[name] for name in inputs], [seen[name] for name in mixed], values, clean, scores)


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
    query = torch.from_numpy(docs.queries[:, 0]).long().repeat(len(values))
    new, hits = torch.cat(list(values.values())), []

    def edit(x: Tensor, site: Site) -> Tensor:
        at = where if x.shape[site.time] > 1 else torch.zeros_like(where)
        hits.append(name)
        changed = put(new, at)(x, site)
        if torch.equal(changed, x) and not torch.equal(take(x, at, site.time), new.to(x)):
            raise NotHit(f"the patch at {name} changed nothing although what was put in is different")
        return changed

    with patch(model, {name: edit}):
        logits = _resumed(model, name, base, where, query)
    if len(hits) != 1:
        raise NotHit(f"the patch at {name} was hit {len(hits)} times; it must be hit once")
    return logits


def _is_idle(model: LanguageModel, name: str, place: Places, docs: Documents) -> bool:
    """Whether a patch cannot reach the query: behind the last mixer no position hears of another."""
    behind = [f"blocks.{len(model.blocks) - 1}.{site}" for site in BEHIND_MIXER] + ["final_in"]
    return name in behind and bool((place[0] != docs.queries[:, 0]).all())


def _resumed(model: LanguageModel, name: str, base: _Trace, where: Tensor, query: Tensor) -> Tensor:
    """The base run once for each place, from the last point before a site on."""
    times, at, layers = len(where) // len(base.inputs[0]), query[:, None], len(model.blocks)
    layer, site = layer_of(name), name.rpartition(".")[2]
    if name == "embed_out":
        return model.resume(0, model.embed_out(base.inputs[0].repeat(times, 1, 1)), at)[:, 0]
    if layer is None:
        return model.resume(layers, base.inputs[-1].repeat(times, 1, 1), at)[:, 0]
    if name != f"blocks.{layer}.{site}" or site not in BEHIND_MIXER:
        return model.resume(layer, base.inputs[layer].repeat(times, 1, 1), at)[:, 0]
    # behind a mixer every position is by itself: only the one that is patched is computed again
    here, mixed = (gathered(x.repeat(times, 1, 1), where[:, None]) for x in (base.inputs[layer], base.mixed[layer]))
    if site == "mixer_out":
        mixed = all_sites(model)[name](mixed)
    block = model.blocks[layer]
    assert isinstance(block, Block)
    stream = base.inputs[layer + 1].repeat(times, 1, 1)
    stream = put(block.behind_mixer(here + mixed)[:, 0], where)(stream, model.final_in)
    return model.resume(layer + 1, stream, at)[:, 0]


def _scores(logits: Tensor, answers: Tensor, clean: "_Clean") -> Values:
    total = logits.logsumexp(dim=-1)
    # Σ p log p − Σ p log q, where log q = logits − total
    kl = clean.negative_entropy - (clean.p * logits).sum(dim=-1) + total
    if not (total.isfinite() & kl.isfinite()).all():  # one number that is none is in their sums
        raise NotHit("the model gives logits that are no numbers; nothing can be read off it")
    right = logits.gather(1, answers[:, None])[:, 0]
    found = {
        "likelihood": (right - total).double().exp(),
        "accuracy": logits.argmax(dim=-1) == answers,
        "logit": right,
        "kl": kl,
    }
    return {name: value.double().numpy() for name, value in found.items()}


@dataclass
class _Clean:
    """The probabilities that the clean run gives."""

    p: Tensor
    negative_entropy: Tensor

    @classmethod
    def of(cls, logits: Tensor) -> "_Clean":
        log_p = logits.log_softmax(dim=-1)
        return cls(log_p.exp(), (log_p.exp() * log_p).sum(dim=-1))


def _check(
    model: LanguageModel, names: Sequence[str], roles: Sequence[str], conditions: Sequence[str], documents: int
) -> None:
    known, asked = all_sites(model), {"sites": names, "roles": roles, "conditions": conditions}
    empty = [f"{what} must name at least one" for what, given in asked.items() if not given]
    empty += [f"documents={documents} must be at least 1"] if documents < 1 else []
    problems = [f"no site {name!r}{nearest(name, known)}" for name in names if name not in known]
    allowed = get_args(Condition)
    problems += [f"condition={c!r} must be one of {', '.join(allowed)}" for c in conditions if c not in allowed]
    if empty or problems:
        raise InvalidInput(empty + problems)


def _bytes_of_a_row(model: LanguageModel, docs: Documents, names: Sequence[str]) -> int:
    """What one document takes in a stacked pass, roughly: the stream some twenty times, the sites a few times."""
    batch = Batch.of(docs)
    with record(model, names) as seen:
        model(batch.tokens, batch.at)
    largest = max((tensor.numel() for tensor in seen.values()), default=0)
    return 4 * (20 * docs.tokens.size * model.config.d_model + 6 * largest + 4 * model.vocab_size)


def _joined(parts: Sequence[dict[str, ndarray]], lead: int) -> dict[str, ndarray]:
    """Blocks end to end, each without the rows that lead it."""
    return {name: np.concatenate([part[name][lead:] for part in parts]) for name in parts[0]}
