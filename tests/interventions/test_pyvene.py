"""A grid against pyvene's, which the paper's authors used: every logit of every cell."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from benchmarks.pyvene_grid import component_sites, pyvene_cells
from mecheval.core.errors import InvalidInput
from mecheval.interventions.interchange import interchange
from mecheval.models.build import build_model
from mecheval.models.config import ModelConfig
from mecheval.models.edits import put
from mecheval.models.language_model import LanguageModel
from mecheval.models.pyvene import to_pyvene
from mecheval.models.site import patch, record, sites
from mecheval.tasks.documents import Corrupted
from mecheval.tasks.recall import Recall

pytest.importorskip("pyvene", reason="pyvene is not installed: pip install mecheval[oracles]")

TASK = Recall(pairs=6, min_pairs=3, vocab=24)
N, V = 8, TASK.vocab_size
ROLES = ("key", "value", "next_key", "divider", "query")
CLOSE = 1e-5
COMPONENTS = {"attention": 6, "mamba": 4}  # mamba has no MLP
LINEAR = {"attention": 10.0, "mamba": 2.0}  # mamba's own start is large already
every_architecture = pytest.mark.parametrize("architecture", COMPONENTS)


class EveryToken:
    """Each document once for every token, which is its answer: a grid then has all logits."""

    vocab_size, max_len, word = TASK.vocab_size, TASK.max_len, TASK.word

    def documents(self, seed, split, start, stop):
        return self._repeated(TASK.documents(seed, split, start, stop // V))

    def corrupt(self, docs, role, seed, kind="resample"):
        twins = TASK.corrupt(docs[::V], role, seed, kind).documents
        return Corrupted(self._repeated(twins), np.ones(len(docs), bool))

    def _repeated(self, docs):
        answers = np.tile(np.arange(V, dtype=np.int32), len(docs))[:, None]
        return replace(docs[np.repeat(np.arange(len(docs)), V)], answers=answers)


@cache
def model_of(architecture):
    """Weights so large that a corruption matters; components and logits are of about size 1."""
    sizes = {
        "d_model": 32,
        "max_len": 16,
        "init_linear": LINEAR[architecture],
        "init_embedding": 10.0,
    }
    return LanguageModel(ModelConfig(architecture=architecture, **sizes), V).requires_grad_(False)


def pair(corrupt):
    docs = TASK.documents(0, "test", 0, N)
    return docs, TASK.corrupt(docs, corrupt, 0).documents


@pytest.mark.slow
@every_architecture
@pytest.mark.parametrize("corrupt", ["key", "value"])
def test_every_logit_is_that_of_pyvene(architecture, corrupt):
    model = model_of(architecture)
    names = component_sites(model)
    assert len(names) == 2 * COMPONENTS[architecture]
    grid = interchange(model, EveryToken(), names, ROLES, corrupt=corrupt, documents=N * V)
    broken = torch.from_numpy(grid.corrupt["logit"]).view(N, V)
    moved = []
    for name, role, theirs in pyvene_cells(model, *pair(corrupt), names, ROLES):
        values = grid.cells["restored", name, role]
        ours, likelihood = (
            torch.from_numpy(values[metric]).view(N, V) for metric in ("logit", "likelihood")
        )
        assert float((ours - theirs).abs().max()) <= CLOSE, (name, role)
        assert float((likelihood - theirs.softmax(dim=-1)).abs().max()) <= CLOSE, (name, role)
        moved.append(float((ours - broken).abs().max()))
    assert len(moved) == len(grid.cells) == len(names) * len(ROLES)
    assert sum(by > 1000 * CLOSE for by in moved) >= len(moved) / 2, (
        "there was something to agree on"
    )


@every_architecture
def test_the_model_is_left_as_it_was(architecture):
    """Pyvene removes every hook of a model that it is given."""
    model, (clean, wrong) = model_of(architecture), pair("key")
    tokens, heard = torch.from_numpy(wrong.tokens).long(), []
    before = model(tokens)
    hook = model.register_forward_hook(lambda *_: heard.append("a pass"))
    try:
        list(pyvene_cells(model, clean, wrong, ["blocks.1.block_in"], ROLES))
        assert not heard
        assert torch.equal(model(tokens), before)
        assert heard == ["a pass"]
    finally:
        hook.remove()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert not any(site.used for site in sites(model).values())


@torch.no_grad()
def test_a_model_of_transformers_is_patched_there_too():
    model = build_model(ModelConfig("hf-config:llama", d_model=16), vocab_size=12)
    there = to_pyvene(model, ["blocks.1.block_in"])
    base, source = torch.randint(12, (2, 2, 5), generator=torch.Generator().manual_seed(0))
    place = [[[4], [4]]]
    located = {"sources->base": (place, place)}
    _, patched = there({"tokens": base}, [{"tokens": source}], unit_locations=located)
    name, at = "blocks.1.block_in", torch.tensor([4, 4])
    with record(model, [name]) as seen:
        model(source)
    with patch(model, {name: put(seen[name][:, 4], at)}):
        ours = model(base)
    assert torch.allclose(patched, ours, atol=1e-6)
    assert not torch.allclose(patched, model(base), atol=1e-3)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("blocks.0.mixer.scores", "'blocks.0.mixer.scores' is computed only while it is edited"),
        ("blocks.0.mixer.head_out", "'blocks.0.mixer.head_out' has the axes batch head time"),
    ],
)
def test_a_site_that_pyvene_would_misread_is_refused(name, reason):
    model = LanguageModel(ModelConfig("attention", d_model=8), V)
    sites(model)["blocks.0.mixer.head_out"].axes = ("batch", "head", "time", "d_head")
    with pytest.raises(InvalidInput, match=reason):
        to_pyvene(model, [name])
