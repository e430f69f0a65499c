"""One forward pass remembered, and a run gone on with from there, other values put in at one site.

A run is resumed from the last point before the site, once for each place, with logits at the query only. A stranger's
model, of which nobody knows how to go on with it, is run from its beginning.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mecheval.core.errors import InterventionError
from mecheval.interventions.grid import layer_of
from mecheval.interventions.positions import Places
from mecheval.models.build import Model, resumes
from mecheval.models.edits import put, take
from mecheval.models.inputs import Batch
from mecheval.models.language_model import Block, LanguageModel
from mecheval.models.ops import gather_reads
from mecheval.models.site import Edit, Site, patch, record, sites
from mecheval.tasks.documents import Documents

BEHIND_MIXER = ("mixer_out", "mlp_in", "mlp_out", "block_out")


@dataclass(frozen=True)
class Trace:
    """What went into every block and came out of its mixer, if there are blocks; what passed the sites at the places,
    where the query is, and the logits there."""

    tokens: Tensor
    inputs: list[Tensor]
    mixed: list[Tensor]
    values: dict[tuple[str, str], Tensor]
    query: Tensor
    logits: Tensor


def traced(model: Model, docs: Documents, names: Sequence[str], places: Mapping[str, Places]) -> Trace:
    """Sites that are materialised have a pass of their own: looking at them changes roundings elsewhere."""
    batch, known = Batch.of(docs), sites(model)
    layers = range(len(model.blocks)) if resumes(model) else ()
    inputs = [f"blocks.{layer}.block_in" for layer in layers] + ["final_in"] * bool(layers)
    mixed = [f"blocks.{layer}.mixer_out" for layer in layers]
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
            raise InterventionError(f"the patch at {name} was hit 0 times; it must be hit once")
    query = torch.from_numpy(docs.queries[:, 0]).long()
    between = [seen[name] for name in inputs], [seen[name] for name in mixed]
    return Trace(batch.tokens, *between, values, query, logits)


def patched(
    model: Model, name: str, base: Trace, values: Mapping[str, Tensor], places: Mapping[str, Places]
) -> tuple[Tensor, ...]:
    """The base run's logits at the query with the values put in, role by role."""
    where = torch.cat([torch.from_numpy(places[role][0]) for role in values])
    new, hits = torch.cat(list(values.values())), []

    def edit(x: Tensor, site: Site) -> Tensor:
        at = where if x.shape[site.time] > 1 else torch.zeros_like(where)
        hits.append(name)
        changed = put(new, at)(x, site)
        if torch.equal(changed, x) and not torch.equal(take(x, at, site.time), new.to(x)):
            raise InterventionError(f"the patch at {name} changed nothing although what was put in is different")
        return changed

    with patch(model, {name: edit}):
        logits = _resumed(model, name, base, where) if resumes(model) else _whole(model, base, where)
    if len(hits) != 1:
        raise InterventionError(f"the patch at {name} was hit {len(hits)} times; it must be hit once")
    return logits.chunk(len(values))


def is_idle(model: Model, name: str, place: Places, base: Trace) -> bool:
    """Whether a patch cannot reach the query: behind our last mixer no position hears of another."""
    if not resumes(model):
        return False
    behind = [f"blocks.{len(model.blocks) - 1}.{site}" for site in BEHIND_MIXER] + ["final_in"]
    return name in behind and bool((place[0] != base.query.numpy()).all())


def _whole(model: Model, base: Trace, where: Tensor) -> Tensor:
    """The base run once for each place, from its tokens on."""
    times = len(where) // len(base.query)
    return model(base.tokens.repeat(times, 1), base.query.repeat(times)[:, None])[:, 0]


def _resumed(model: LanguageModel, name: str, base: Trace, where: Tensor) -> Tensor:
    """The base run once for each place, from the last point before a site on."""
    times, layers = len(where) // len(base.query), len(model.blocks)
    at = base.query.repeat(times)[:, None]
    layer, site = layer_of(name), name.rpartition(".")[2]
    if name == "embed_out":
        return model.resume(0, model.embed_out(base.inputs[0].repeat(times, 1, 1)), at)[:, 0]
    if layer is None:
        return model.resume(layers, base.inputs[-1].repeat(times, 1, 1), at)[:, 0]
    if name != f"blocks.{layer}.{site}" or site not in BEHIND_MIXER:
        return model.resume(layer, base.inputs[layer].repeat(times, 1, 1), at)[:, 0]
    # behind a mixer every position is by itself: only the one that is patched is computed again
    here, mixed = (gather_reads(x.repeat(times, 1, 1), where[:, None]) for x in (base.inputs[layer], base.mixed[layer]))
    if site == "mixer_out":
        mixed = sites(model)[name](mixed)
    block = model.blocks[layer]
    assert isinstance(block, Block)
    stream = base.inputs[layer + 1].repeat(times, 1, 1)
    stream = put(block.after_mixer(here + mixed)[:, 0], where)(stream, model.final_in)
    return model.resume(layer + 1, stream, at)[:, 0]
