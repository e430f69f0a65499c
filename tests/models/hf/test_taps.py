"""Sites inside the mixers of transformers models hold the model's own tensors, and are live."""

import copy
import sys
from pathlib import Path

import pytest
import torch
from support.tiny_transformers import (
    BATCH,
    TIME,
    Tapped,
    build,
    draw,
    families,
    named,
    padded,
    run,
    tapped,
)
from torch import nn

from mecheval.core.errors import InvalidInput
from mecheval.models.edits import add, put, zero
from mecheval.models.external import ExternalModel
from mecheval.models.hf.taps import KINDS, kind_of, place_taps
from mecheval.models.site import patch, record, sites

PAGE = (Path(__file__).parents[3] / "docs" / "hub-sites.md").read_text(encoding="utf-8")
ROUNDING = 5e-6  # of a path that is taken only while a site is used


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("family", families())
def test_idle_sites_change_no_bit(family):
    plain, model = build(family), tapped(family)
    with torch.no_grad():
        for options in {}, {"attention_mask": padded()}:
            expected = plain(draw(0), use_cache=False, **options).logits
            assert torch.equal(model(draw(0), **options), expected)


@pytest.mark.parametrize("family", families())
def test_every_layer_has_sites_and_a_pass_meets_each_once(family):
    model = tapped(family)
    blocks = {name.split(".")[1] for name in sites(model)}
    assert len(blocks) == model.model.config.num_hidden_layers
    for name, site in sites(model).items():
        shapes = []
        with torch.no_grad(), patch(model, {name: lambda x, _, to=shapes: to.append(x.shape) or x}):
            model(draw(0))
        (shape,) = shapes
        assert len(shape) == len(site.axes), name
        assert (shape[0], shape[site.time]) == (BATCH, TIME), name


@pytest.mark.parametrize("family", families())
def test_own_values_change_nothing_and_those_of_another_document_do(family):
    model = tapped(family)
    for name in sites(model):
        (own, logits), (others, _) = (run(model, [name], draw(seed)) for seed in (0, 1))
        with torch.no_grad():
            with patch(model, {name: put(own[name])}):
                assert (model(draw(0)) - logits).abs().max() <= 1e-6, name
            with patch(model, {name: put(others[name])}):
                assert (model(draw(0)) - logits).abs().max() > 1e-5, name
            assert (model(draw(0)) - logits).abs().max() <= ROUNDING, name


@pytest.mark.parametrize("family", families())
def test_an_edit_at_a_token_is_felt_from_there_on(family):
    model, at = tapped(family), torch.full((BATCH,), 2)
    for name, site in sites(model).items():
        seen, logits = run(model, [name], draw(0))
        other = torch.rand(seen[name].select(site.time, 0).shape)
        with torch.no_grad(), patch(model, {name: add(other, at)}):
            change = (model(draw(0)) - logits).abs().amax(dim=(0, 2))
        assert change[:2].max() <= ROUNDING, name
        by_next = family == "rwkv" and name.endswith("state")  # a token reads what was before it
        assert change[3 if by_next else 2] > 1e-4, name
        if name.endswith("state"):
            assert change[3] > 1e-4, name


@torch.no_grad()
@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-5), (torch.bfloat16, 0.1)])
@pytest.mark.parametrize("family", families())
def test_all_sites_can_be_recorded_in_other_precisions(family, dtype, close):
    plain, model = build(family).to(dtype), Tapped(family).to(dtype)
    logits = plain(draw(0), use_cache=False).logits
    assert torch.equal(model(draw(0)), logits)
    _, recorded = run(model, list(sites(model)), draw(0))
    assert (recorded - logits).abs().max() <= close


@pytest.mark.parametrize("family", families())
def test_an_external_model_takes_all_sites_at_once(family):
    model = ExternalModel(tapped(family))
    assert list(sites(model.module)) == list(sites(tapped(family)))


@pytest.mark.parametrize("family", families("llama", "mamba2", "qwen3_next", "kimi_linear"))
def test_edits_of_the_state_and_of_the_weights_add_up(family):
    model = tapped(family)
    names = named(model, "state", "mixing") or named(model, "query", "scores")
    first, second = names[:2]
    seen, logits = run(model, [first, second], draw(0))
    with torch.no_grad(), patch(model, {name: put(seen[name]) for name in (first, second)}):
        assert (model(draw(0)) - logits).abs().max() <= 1e-6


@pytest.mark.parametrize("family", families())
def test_gradients_are_those_of_the_model_whatever_is_recorded(family):
    plain, model = build(family).train(), Tapped(family).train()
    plain(draw(0), use_cache=False).logits.square().sum().backward()
    model(draw(0)).square().sum().backward()
    expected = {name: p.grad for name, p in plain.named_parameters() if p.grad is not None}
    for name, parameter in model.model.named_parameters():
        if name in expected:
            torch.testing.assert_close(parameter.grad, expected[name], rtol=0, atol=0)
    model.zero_grad()
    with record(model, list(sites(model))):
        model(draw(0)).square().sum().backward()
    for name, parameter in model.model.named_parameters():
        if name in expected:
            size = expected[name].abs().max()
            assert (parameter.grad - expected[name]).abs().max() <= 1e-3 * size + 1e-5, name


@pytest.mark.parametrize("family", families("llama", "mamba2", "qwen3_next", "minimax", "xlstm"))
def test_nothing_of_the_module_changes_even_if_a_pass_fails(family):
    def fail(x, site):
        raise ZeroDivisionError

    plain = build(family)
    module = vars(sys.modules[type(plain).__module__])
    before = dict(module)
    model = Tapped(family)
    with pytest.raises(ZeroDivisionError), patch(model, dict.fromkeys(sites(model), fail)):
        model(draw(0))
    assert module == before
    assert not any(hasattr(part, "tapped_forward") for part in plain.modules())
    assert torch.equal(model(draw(0)), plain(draw(0), use_cache=False).logits)


@pytest.mark.parametrize("family", families())
def test_a_copy_has_sites_of_its_own(family):
    model = Tapped(family)
    model(draw(0)).sum().backward()
    copied = copy.deepcopy(model)
    seen, logits = run(copied, list(sites(copied)), draw(0))
    assert seen.keys() == sites(model).keys()
    with torch.no_grad(), patch(copied, {name: put(0 * x) for name, x in seen.items()}):
        assert not torch.allclose(copied(draw(0)), logits, atol=1e-3)
        torch.testing.assert_close(model(draw(0)), logits)


def test_a_module_with_two_names_is_refused():
    attention = build("llama").model.layers[0].self_attn
    with pytest.raises(InvalidInput, match="two are one module"):
        place_taps({"blocks.0.mixer": attention, "blocks.1.mixer": attention}, "llama")


def test_taps_are_placed_once_and_first():
    model = Tapped("llama")
    with pytest.raises(InvalidInput, match="has sites already; load the model again"):
        place_taps(model.mixers, "llama")


def test_a_pass_with_a_cache_is_refused_while_a_site_is_used():
    model = tapped("llama")
    used = patch(model, {"blocks.1.self_attn.key": zero()})
    with used, pytest.raises(InvalidInput, match="use_cache=False"):
        model.model(draw(0), use_cache=True)
    with torch.no_grad():
        idle, plain = (m(draw(0), use_cache=True).logits for m in (model.model, build("llama")))
    assert torch.equal(idle, plain)


def test_attention_that_no_site_would_see_is_refused():
    model = build("gpt2", "eager")
    model.transformer.h[0].attn.reorder_and_upcast_attn = True
    with pytest.raises(InvalidInput, match=r"blocks.0.mixer of gpt2 .* attn_implementation='sdpa'"):
        place_taps({"blocks.0.mixer": model.transformer.h[0].attn}, "gpt2")


def test_a_mixer_of_another_kind_has_no_sites():
    assert kind_of(nn.Linear(2, 2)) is None
    assert place_taps({"blocks.0.mixer": nn.Linear(2, 2)}, "linear") == {}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_page_has_the_sites_of_a_kind(kind):
    (part,) = (part for part in PAGE.split("\n## ") if part.startswith(f"{kind.name}\n"))
    rows = set()
    for tap in kind.taps:
        for place in tap.places if tap.name != "o_proj" else ():  # others call it out_proj
            star = " *" if place.materialised else ""
            rows.add(f"| `{place.name}`{star} | {place.axes} | {place.about} | `{tap.name}` |")
    assert {line for line in part.splitlines() if line.startswith("| `")} == rows


@pytest.mark.parametrize("family", families())
def test_the_page_has_the_kinds_of_a_family(family):
    kinds = ", ".join(dict.fromkeys(tapped(family).kinds.values()))
    assert f"| `{family}` | {kinds} |" in PAGE
