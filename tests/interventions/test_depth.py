"""The grid of a deep model is the grid of `interchange`, in parts that are kept."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support import known_models
from support.hub_models import llama, with_words

from mecheval.core.errors import InvalidInput, StoreError
from mecheval.interventions import depth
from mecheval.interventions.depth import ROLES, depth_grid, depth_sites
from mecheval.interventions.depth_parts import model_digest
from mecheval.interventions.interchange import interchange
from mecheval.interventions.layer_map import layer_map
from mecheval.models.hf.lexicon import in_words
from mecheval.models.hf.model import HubModel
from mecheval.tasks.recall import Recall

TASK = Recall(pairs=3, min_pairs=2, vocab=16, passes=2)


def differences(ours, theirs):
    assert list(ours.cells) == list(theirs.cells)
    pairs = [(ours.cells[cell], theirs.cells[cell]) for cell in ours.cells]
    pairs += [(ours.clean, theirs.clean), (ours.corrupt, theirs.corrupt)]
    return max(float(np.nanmax(np.abs(a[name] - b[name]))) for a, b in pairs for name in b)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["resample", "swap"])
def test_behind_a_prefix_every_cell_is_that_of_a_whole_pass(kind):
    model = HubModel(llama(TASK.vocab_size, 4, num_key_value_heads=2), "tiny")
    assert model.reads_prefixes
    given = {"documents": 40, "kind": kind}
    whole = interchange(model, TASK, depth_sites(4), ROLES, **given)
    assert differences(depth_grid(model, TASK, **given), whole) < 1e-5
    restored = whole.cells["restored", "blocks.2.block_in", "value"]["logit"]
    assert np.abs(restored - whole.corrupt["logit"]).max() > 1e-4  # there is something to see


def test_ours_have_the_same_grid_in_parts():
    model, task = known_models.induction(), known_models.TASK
    whole = interchange(model, task, depth_sites(2), ROLES, documents=40)
    grid = depth_grid(model, task, documents=40)
    assert differences(grid, whole) < 1e-6
    assert grid.verdict() == whole.verdict()


@pytest.mark.slow
def test_in_words_too():
    model = with_words()
    task = in_words(Recall(pairs=3, passes=2), model, "names", "sentence")
    whole = interchange(model, task, depth_sites(2), ROLES, documents=16)
    assert differences(depth_grid(model, task, documents=16), whole) < 1e-5


@pytest.mark.slow
def test_a_part_that_is_kept_is_not_measured_again(tmp_path, monkeypatch):
    model, task = known_models.induction(), known_models.TASK
    first = depth_grid(model, task, documents=70, folder=tmp_path)
    assert len(list(tmp_path.glob("part-*.safetensors"))) == 3
    measured = []
    measure = depth._measure
    monkeypatch.setattr(depth, "_measure", lambda *a: measured.append(a[1]) or measure(*a))
    again = depth_grid(model, task, documents=70, folder=tmp_path)
    assert not measured
    assert differences(again, first) == 0
    assert depth_grid(model, task, documents=70).verdict() == again.verdict()
    measured.clear()
    more = depth_grid(model, task, documents=96, folder=tmp_path)
    assert measured == [64]
    assert len(more.clean["likelihood"]) > len(first.clean["likelihood"])
    for other, seed in ((known_models.induction(3, 0, 2), 0), (model, 1)):
        measured.clear()
        depth_grid(other, task, documents=32, seed=seed, folder=tmp_path)
        assert measured == [0], "another model or seed has parts of its own"


def test_a_map_says_where_a_model_that_is_known_stores_and_finds():
    found = layer_map(depth_grid(known_models.induction(4, 1, 2), known_models.TASK, documents=64))
    shares = {(row.layer, row.role): row.share for row in found.rows}
    holders = [("key", "key", "value", "query")[layer] for layer in range(4)]
    for (layer, role), share in shares.items():
        assert share > 0.98 if role == holders[layer] else share < 0.1, (layer, role)
    said = str(found)
    assert "stored at the value by layers 1 (100%" in said
    assert "carried to the query by layers 2 (100%" in said
    assert "the value holds half or more at the inputs of layers 2;" in said
    assert found.to_frame().shape[0] == 4 * len(ROLES)
    assert found.plot().axes


def test_a_corruption_of_another_role_has_no_map():
    grid = interchange(known_models.induction(), known_models.TASK, corrupt="query", documents=8)
    with pytest.raises(InvalidInput, match="must be key for a map of layers"):
        layer_map(grid)


def test_the_first_share_is_measured_and_not_assumed():
    grid = depth_grid(known_models.induction(), known_models.TASK, documents=40)
    cell = "restored", "blocks.0.block_in", "key"
    lost = replace(grid, cells={**grid.cells, cell: grid.corrupt})
    assert [layer_map(g).at("key")[0].share for g in (grid, lost)] == pytest.approx([1, 0])
    without = replace(grid, cells={name: x for name, x in grid.cells.items() if name != cell})
    assert np.isnan(layer_map(without).at("key")[0].share)
    said = str(layer_map(without))
    assert "the key never holds half" in said
    assert "nan" not in said


def test_a_map_is_silent_about_roles_that_were_not_restored():
    grid = depth_grid(known_models.induction(), known_models.TASK, ("key",), documents=40)
    said = str(layer_map(grid))
    assert "the key holds half or more at the inputs of layers 0" in said
    assert "value" not in said
    assert "query" not in said


def test_a_damaged_part_is_measured_again(tmp_path):
    model, task = known_models.induction(), known_models.TASK
    first = depth_grid(model, task, documents=32, folder=tmp_path)
    (part,) = tmp_path.iterdir()
    whole = part.read_bytes()
    for damaged in (whole[:-9], whole[:-9] + b"\xff" * 9, b""):
        part.write_bytes(damaged)
        assert differences(depth_grid(model, task, documents=32, folder=tmp_path), first) == 0
        assert [*tmp_path.iterdir()] == [part]
        assert part.read_bytes() == whole


def test_a_folder_that_cannot_be_made_is_an_error_in_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot be written: .*; keep parts elsewhere"):
        depth_grid(
            known_models.induction(),
            known_models.TASK,
            documents=8,
            folder=tmp_path / "file" / "parts",
        )


def test_models_whose_weights_have_the_same_sums_have_parts_of_their_own():
    model, other = known_models.random("attention"), known_models.random("attention")
    assert model_digest(model) == model_digest(other)
    with torch.no_grad():
        other.embedding.weight[:] = other.embedding.weight.flip(0)
    digests = {model_digest(model), model_digest(other), model_digest(model.to(torch.bfloat16))}
    theirs = HubModel(llama(8, 2), "tiny")
    before = model_digest(theirs)
    theirs.module.config.rms_norm_eps = 0.1
    assert len({*digests, before, model_digest(theirs)}) == 5
