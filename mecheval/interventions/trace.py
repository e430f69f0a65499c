"""Cache one forward pass, and resume it with activations replaced at one site.

A pass resumes at the last cached point before the site, once for each place, with logits at the
query only. A model that cannot be resumed runs from its tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mecheval.core.errors import InterventionError
from mecheval.interventions.grid import layer_of
from mecheval.interventions.positions import Places
from mecheval.models.build import Model, Resumable, is_ours, resumes
from mecheval.models.edits import put, take
from mecheval.models.inputs import Batch
from mecheval.models.language_model import Block, LanguageModel
from mecheval.models.ops import gather_reads
from mecheval.models.site import Edit, Site, patch, record, sites
from mecheval.tasks.documents import Documents

ByRole = Mapping[str, Places]
BEHIND_MIXER = ("mixer_out", "mlp_in", "mlp_out", "block_out")


@dataclass(frozen=True)
class Trace:
    """One forward pass: `values` are the activations by site and role, `logits` those at the query.

    `inputs` are those of the blocks, if the pass can resume there; of our model, also of the final
    norm. `mixed` are the outputs of our mixers.
    """

    tokens: Tensor
    inputs: list[Tensor]
    mixed: list[Tensor]
    values: dict[tuple[str, str], Tensor]
    query: Tensor
    logits: Tensor


def trace(model: Model, docs: Documents, names: Sequence[str], places: ByRole) -> Trace:
    """Run the documents and cache what later runs need.

    Each materialised site has a pass of its own: recording it changes roundings elsewhere.
    """
    batch, known = Batch.of(docs), sites(model)
    layers = range(model.depth) if resumes(model) else ()
    inputs = [f"blocks.{layer}.block_in" for layer in layers] + ["final_in"] * is_ours(model)
    mixed = [f"blocks.{layer}.mixer_out" for layer in layers] if is_ours(model) else []
    values: dict[tuple[str, str], Tensor] = {}

    def keep(name: str) -> Edit:
        def edit(x: Tensor, site: Site) -> Tensor:
            for role, (where, _) in places.items():
                values[name, role] = take(x, torch.from_numpy(where), site.time)
            return x

        return edit

    for name in names:
        if known[name].materialised:
            with patch(model, {name: keep(name)}):
                model(batch.tokens, batch.at)
    together = {name: keep(name) for name in names if not known[name].materialised}
    with record(model, inputs + mixed) as seen, patch(model, together):
        logits = model(batch.tokens, batch.at)[:, 0]
    for name in names:
        _check_hits(name, int((name, next(iter(places))) in values))
    query = torch.from_numpy(docs.queries[:, 0]).long()
    cached = [seen[name] for name in inputs], [seen[name] for name in mixed]
    return Trace(batch.tokens, *cached, values, query, logits)


def run_patched(
    model: Model, name: str, base: Trace, values: Mapping[str, Tensor], places: ByRole
) -> tuple[Tensor, ...]:
    """Return, role by role, the base run's logits at the query with the values put in."""
    where = torch.cat([torch.from_numpy(places[role][0]) for role in values])
    new, hits = torch.cat(list(values.values())), []

    def edit(x: Tensor, site: Site) -> Tensor:
        at = where if x.shape[site.time] > 1 else torch.zeros_like(where)
        hits.append(name)
        changed = put(new, at)(x, site)
        if torch.equal(changed, x) and not torch.equal(take(x, at, site.time), new.to(x)):
            raise InterventionError(f"the patch at {name} had no effect although its value differs")
        return changed

    with patch(model, {name: edit}):
        logits = _run_from(model, name, base, where)
    _check_hits(name, len(hits))
    return logits.chunk(len(values))


def _check_hits(name: str, hits: int) -> None:
    if hits != 1:
        raise InterventionError(f"the patch at {name} was hit {hits} times; it must be hit once")


def is_idle(model: Model, name: str, place: Places, base: Trace) -> bool:
    """Tell if a patch cannot reach the query: behind our last mixer, positions are independent."""
    if not is_ours(model):
        return False
    last = len(model.blocks) - 1
    if model.blocks[last].mixes_after_mixer:
        return False
    behind = [f"blocks.{last}.{site}" for site in BEHIND_MIXER] + ["final_in"]
    return name in behind and bool((place[0] != base.query.numpy()).all())


def _run_from(model: Model, name: str, base: Trace, where: Tensor) -> Tensor:
    """Run from the last cached point before a site, once for each place."""
    if is_ours(model):
        return _resume(model, name, base, where)
    layer = layer_of(name)
    if not resumes(model) or (layer is None and name != "final_in"):
        return _rerun(model, base, where)
    return _resume_block(model, model.depth - 1 if layer is None else layer, base, where)


def _rerun(model: Model, base: Trace, where: Tensor) -> Tensor:
    """Run the base tokens once for each place."""
    times = len(where) // len(base.query)
    return model(base.tokens.repeat(times, 1), base.query.repeat(times)[:, None])[:, 0]


def _resume_block(model: Resumable, layer: int, base: Trace, where: Tensor) -> Tensor:
    """Resume the base run at the input of a block, once for each place."""
    times = len(where) // len(base.query)
    at = base.query.repeat(times)[:, None]
    return model.resume(layer, base.inputs[layer].repeat(times, 1, 1), at)[:, 0]


def _resume(model: LanguageModel, name: str, base: Trace, where: Tensor) -> Tensor:
    """Resume the base run once for each place, at the last cached point before the site."""
    times, layers = len(where) // len(base.query), len(model.blocks)
    at = base.query.repeat(times)[:, None]
    layer, site = layer_of(name), name.rpartition(".")[2]
    if name == "embed_out":
        return model.resume(0, model.embed_out(base.inputs[0].repeat(times, 1, 1)), at)[:, 0]
    if layer is None:
        return model.resume(layers, base.inputs[-1].repeat(times, 1, 1), at)[:, 0]
    block = model.blocks[layer]
    assert isinstance(block, Block)
    alone = (
        name == f"blocks.{layer}.{site}" and site in BEHIND_MIXER and not block.mixes_after_mixer
    )
    if not alone:
        return _resume_block(model, layer, base, where)
    # behind a mixer positions are independent: only the patched one is computed again
    x = gather_reads(base.inputs[layer].repeat(times, 1, 1), where[:, None])
    mixed = gather_reads(base.mixed[layer].repeat(times, 1, 1), where[:, None])
    if site == "mixer_out":
        mixed = sites(model)[name](mixed)
    stream = base.inputs[layer + 1].repeat(times, 1, 1)
    stream = put(block.after_mixer(x + mixed)[:, 0], where)(stream, model.final_in)
    return model.resume(layer + 1, stream, at)[:, 0]
