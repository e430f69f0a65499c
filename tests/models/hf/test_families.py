"""Every family: sites are live and exact, a pass resumes at each block, and the checks pass."""

import copy
from functools import cache
from pathlib import Path

import pytest
import torch

from mecheval.core.errors import InvalidInput
from mecheval.interventions.interchange import interchange
from mecheval.models.build import build_model
from mecheval.models.check_model import check_whole
from mecheval.models.config import ModelConfig
from mecheval.models.edits import put
from mecheval.models.external import ExternalModel
from mecheval.models.hf.families import ALIASES, FAMILIES, NAMES
from mecheval.models.hf.model import HubModel
from mecheval.models.hf.options import HYBRIDS
from mecheval.models.hf.small import SIZES
from mecheval.models.ops import gather_reads
from mecheval.models.site import patch, record, sites
from mecheval.tasks.recall import Recall

TASK = Recall(pairs=3, vocab=12)
VOCAB, TIME = TASK.vocab_size, TASK.max_len
QUICK = ("llama", "jamba")  # one family whose layers are alike, and a hybrid
EXACT = 1e-6
ROUNDED = 1e-5  # of a materialised site, whose tensor is computed on another path
every_family = pytest.mark.parametrize(
    "family",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NAMES],
)


@cache
def build(family, layers=2):
    config = ModelConfig(f"hf-config:{family},hidden=32,layers={layers}", max_len=TIME)
    return build_model(config, VOCAB, seed=1)


def documents():
    """Two documents without a token in common at any position."""
    generator = torch.Generator().manual_seed(0)
    clean = torch.randint(VOCAB, (3, TIME), generator=generator)
    return clean, (clean + 1 + torch.arange(TIME) % (VOCAB - 2)) % VOCAB


def worst(a, b):
    return float((a - b).abs().max())


@torch.no_grad()
@every_family
def test_each_site_is_passed_once_and_its_own_value_changes_nothing(family):
    model, (clean, _) = build(family), documents()
    logits, passed = model(clean), []

    def count(name):
        def edit(x, site):
            passed.append(name)
            return x

        return edit

    names = list(sites(model))
    with patch(model, {name: count(name) for name in names}):
        assert worst(model(clean), logits) <= ROUNDED  # all materialised sites at once
    assert sorted(passed) == sorted(names)
    for name, site in sites(model).items():
        with record(model, [name]) as own:
            model(clean)
        with patch(model, {name: put(own[name])}):
            tolerance = ROUNDED if site.materialised else EXACT
            assert worst(model(clean), logits) <= tolerance, name


@torch.no_grad()
@every_family
def test_noise_at_any_site_changes_the_logits(family):
    model, (clean, _) = build(family), documents()
    for name in sites(model):
        with record(model, [name]):
            logits = model(clean)
        with patch(model, {name: lambda x, site: x + torch.randn_like(x)}):
            assert not torch.equal(model(clean), logits), name


@torch.no_grad()
@every_family
def test_what_enters_a_block_determines_the_logits_also_of_a_resumed_pass(family):
    model, (clean, other) = build(family), documents()
    boundaries = [f"blocks.{layer}.block_in" for layer in range(model.depth)]
    with record(model, [*boundaries, "final_in"]) as seen:
        logits = model(clean)
    assert worst(model(other), logits) > 1e-2
    for layer, name in enumerate(boundaries):
        with patch(model, {name: put(seen[name])}):
            assert worst(model(other), logits) <= EXACT, name
        assert worst(model.resume(layer, seen[name]), logits) <= EXACT, name
    with patch(model, {"final_in": put(seen["final_in"])}):
        assert worst(model(other), logits) <= EXACT
    assert worst(model.resume(model.depth, seen["final_in"]), logits) <= EXACT


@torch.no_grad()
@every_family
def test_a_resumed_pass_gives_what_a_whole_pass_gives_with_a_patch_in_it(family):
    model, (clean, other) = build(family), documents()
    at = torch.tensor([[TIME - 1], [2], [0]])
    last = f"blocks.{model.depth - 1}"
    with record(model, [f"{last}.block_in"]) as entering:
        model(clean)
    for name in [name for name in sites(model) if name.startswith(last)]:
        with record(model, [name]) as seen:
            model(other)
        with patch(model, {name: put(seen[name])}):
            whole, resumed = model(clean, at), model.resume(model.depth - 1, *entering.values(), at)
        assert worst(whole, resumed) <= EXACT, name


@torch.no_grad()
@every_family
def test_a_resumed_pass_leaves_out_the_blocks_before(family):
    model, (clean, _) = build(family), documents()
    first, last = (f"blocks.{layer}.block_in" for layer in (0, model.depth - 1))
    with record(model, [last]) as seen:
        model(clean)
    with record(model, [first, last]) as again:
        model.resume(model.depth - 1, seen[last])
    assert list(again) == [last]


@torch.no_grad()
@every_family
def test_logits_are_computed_where_they_are_read(family):
    model, (clean, _) = build(family), documents()
    at = torch.tensor([[0, 5], [3, 1], [2, 6]])
    assert model(clean, at).shape == (3, 2, VOCAB)
    assert worst(model(clean, at), gather_reads(model(clean), at)) <= 2 * EXACT


@every_family
def test_the_checks_of_a_third_party_model_pass(family):
    check_whole(ModelConfig(f"hf-config:{family},hidden=16", max_len=16))


@torch.no_grad()
@every_family
def test_float64_gives_the_logits_of_float32(family):
    model, (clean, _) = build(family), documents()
    assert worst(copy.deepcopy(model).double()(clean), model(clean)) < 1e-4


@every_family
def test_a_model_is_small_and_depends_on_its_seed_alone(family):
    config = ModelConfig(f"hf-config:{family}", d_model=64, layers=2, max_len=TIME)
    one, same, other = (build_model(config, 64, seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)
    assert sum(tensor.numel() for tensor in one.values()) <= 1_000_000


@pytest.mark.parametrize("family", sorted(HYBRIDS & {*QUICK}))
def test_a_hybrid_has_every_kind_of_layer(family):
    assert len(set(build(family).layer_kinds)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(HYBRIDS))
def test_every_hybrid_has_every_kind_of_layer(family):
    assert len(set(build(family).layer_kinds)) == 2
    assert build(family).kinds == build(family).layer_kinds


@every_family
def test_a_grid_by_resumed_passes_is_that_of_whole_passes(family):
    model = build(family)
    external = copy.deepcopy(model)
    external.__class__ = type("Whole", (HubModel,), {"resume": property()})
    grids = [interchange(each, TASK, documents=8) for each in (model, external)]
    assert not hasattr(external, "resume")
    for cell, values in grids[0].cells.items():
        difference = abs(values["likelihood"] - grids[1].cells[cell]["likelihood"])
        assert difference.max() <= EXACT, cell


def test_the_table_and_the_small_configurations_have_the_same_families():
    assert {model_type for model_type, _ in SIZES.values()} == {*FAMILIES}
    assert {*SIZES} == {*NAMES}
    assert {*HYBRIDS} < {*NAMES}


def test_the_page_has_every_family_with_its_kinds_and_notes():
    page = (Path(__file__).parents[3] / "docs" / "hub.md").read_text()
    for model_type, family in FAMILIES.items():
        kinds = []
        for kind in family.mixers.values():
            kinds += [kind] if isinstance(kind, str) else kind.values()
        name = ALIASES.get(model_type, model_type)
        row = f"| `{name}` | {', '.join(dict.fromkeys(kinds))} | {'; '.join(family.notes)} |"
        assert row in page.splitlines()


@torch.no_grad()
def test_the_sum_of_parallel_mixers_is_what_the_block_adds(monkeypatch):
    model, (clean, _) = build("falcon_h1"), documents()
    layer = model.module.model.layers[0]
    monkeypatch.setattr(layer, "ssm_out_multiplier", 0.5)
    monkeypatch.setattr(layer, "attn_out_multiplier", 2.0)
    names = ["block_in", "mixer_out", "mixer.mamba2_out", "mixer.attention_out"]
    names = [f"blocks.0.{name}" for name in names]
    with record(model, names) as seen:
        model(clean)
    stream, total, scan, attention = (seen[name] for name in names)
    assert worst(total, 0.5 * scan + 2.0 * attention) <= EXACT
    after = "blocks.0.block_out"
    with patch(model, {names[1]: put(-stream)}), record(model, [after]) as seen:
        model(clean)
    assert seen[after].abs().max() <= EXACT, "nothing is left of the stream"


def broken(*given):
    raise RuntimeError("broken")


@torch.no_grad()
def test_nothing_is_left_of_a_pass_that_fails_between_parallel_mixers():
    model, (clean, other) = build("falcon_h1"), documents()
    total = "blocks.0.mixer_out"
    with record(model, [total]) as before:
        logits = model(clean)
    with pytest.raises(RuntimeError), patch(model, {"blocks.0.mixer.attention.query": broken}):
        model(other)
    with record(model, [total]) as after:
        assert torch.equal(model(clean), logits)
    assert torch.equal(after[total], before[total])


@torch.no_grad()
def test_nothing_is_left_of_a_pass_that_fails_before_the_norm_of_lightning_attention():
    model, (clean, other) = build("minimax"), documents()
    logits = model(clean)
    norm = model.module.model.layers[0].self_attn.norm
    hook = norm.register_forward_pre_hook(broken)
    with pytest.raises(RuntimeError), record(model, ["blocks.0.mixer.state"]):
        model(other)
    hook.remove()
    assert torch.equal(model(clean), logits)


@torch.no_grad()
def test_projections_in_one_are_the_parts_that_attention_reads():
    for family, parts in (("gpt2", 3), ("gpt_neox", 3)):
        model, (clean, _) = build(family), documents()
        names = [f"blocks.0.mixer.{name}" for name in ("query", "key", "value")]
        with record(model, names) as seen:
            model(clean)
        heads = 2
        assert [tuple(seen[name].shape) for name in names] == [(3, TIME, heads, 16)] * parts
        with (
            patch(model, {names[2]: lambda x, site: x * 0}),
            record(model, ["blocks.0.mixer.head_out"]) as read,
        ):
            model(clean)
        assert read["blocks.0.mixer.head_out"].abs().max() == 0, "no values, nothing is read"


def test_an_unknown_family_has_the_sites_of_its_blocks_and_says_so():
    from transformers import MistralConfig, MistralForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    config = MistralConfig(vocab_size=VOCAB, num_hidden_layers=2, num_key_value_heads=2, **sizes)
    model = HubModel(MistralForCausalLM(config))
    blocks = [f"blocks.{layer}.block_{end}" for layer in (0, 1) for end in ("in", "out")]
    assert list(sites(model)) == ["embed_out", *blocks]
    assert model.notes == (
        "mistral is not in the table of families: it has sites between its blocks alone",
    )
    assert isinstance(model, ExternalModel)


def test_weights_that_are_no_numbers_are_refused():
    module = build("llama").module
    copied = type(module)(module.config)
    with torch.no_grad():
        copied.lm_head.weight[0, 0] = torch.nan
    with pytest.raises(InvalidInput, match="not finite; load it in float32"):
        HubModel(copied, "odd")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_checked_and_measured(dtype):
    module = build("llama").module
    model = HubModel(type(module)(module.config).to(dtype), "half")
    whole = interchange(model, TASK, ["blocks.1.block_in"], ["value"], documents=8)
    (values,) = whole.cells.values()
    assert torch.from_numpy(values["kl"]).isfinite().all()
