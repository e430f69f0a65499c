import pytest
import torch
from torch import nn

from mecheval.core.errors import InvalidInput
from mecheval.models import edits
from mecheval.models.config import ModelConfig
from mecheval.models.language_model import LanguageModel
from mecheval.models.site import Site, patch, record, sites

ARCHITECTURES = ["attention", "base_conv", "based", "delta_net", "h3:d_state=32", "hyena", "mamba"]


def model_of(architecture="attention", layers=2, d_model=16):
    return LanguageModel(
        ModelConfig(architecture=architecture, d_model=d_model, layers=layers, max_len=64), 50
    )


@pytest.fixture
def tokens():
    return torch.randint(0, 50, (4, 12), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_idle_sites_change_no_bit(architecture, tokens):
    model = model_of(architecture)
    before = model(tokens)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Site) and name not in (
                "state",
                "scores",
                "block_out",
                "final_in",
                "mlp_in",
                "mlp_out",
            ):
                setattr(module, name, nn.Identity())
    assert torch.equal(model(tokens), before)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_site_is_visited_with_the_axes_it_declares(architecture, tokens):
    model = model_of(architecture)
    with record(model, list(sites(model))) as seen:
        model(tokens)
    assert set(seen) == set(sites(model))
    for name, site in sites(model).items():
        assert seen[name].dim() == len(site.axes), name
        assert seen[name].shape[0] == 4
        assert seen[name].shape[site.time] == 12
        assert site.about


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_putting_back_what_was_recorded_changes_nothing(architecture, tokens):
    model = model_of(architecture).double()
    with record(model, list(sites(model))) as seen:
        clean = model(tokens)
    at = torch.tensor([0, 3, 11, 7])
    for name, value in seen.items():
        with patch(model, {name: edits.put(value, at)}):
            assert (model(tokens) - clean).abs().max() < 1e-12, name


def test_site_names_are_stable():
    stream = ["block_in", "mixer_in", "mixer_out", "mlp_in", "mlp_out", "block_out"]
    inner = ["mixer.query", "mixer.key", "mixer.value", "mixer.scores", "mixer.head_out"]
    expected = {
        "embed_out",
        "final_in",
        *(f"blocks.{i}.{name}" for i in (0, 1) for name in stream + inner),
    }
    assert set(sites(model_of())) == expected
    assert not any("mlp" in name for name in sites(model_of("mamba")))


def test_no_edit_is_left_after_an_exception(tokens):
    model = model_of()
    before = model(tokens)

    def fails(x, site):
        raise ZeroDivisionError

    with (
        pytest.raises(ZeroDivisionError),
        patch(model, {"blocks.0.mixer_out": fails, "embed_out": edits.zero()}),
    ):
        model(tokens)
    assert not any(site.used for site in sites(model).values())
    assert torch.equal(model(tokens), before)


def test_patches_nest_and_the_inner_one_acts_last(tokens):
    model = model_of()
    seven = torch.full((4, 12, 16), 7.0)
    with patch(model, {"embed_out": edits.zero()}):
        with patch(model, {"embed_out": edits.put(seven)}), record(model, ["embed_out"]) as seen:
            model(tokens)
            assert (seen["embed_out"] == 7).all()
        with record(model, ["embed_out"]) as seen:
            model(tokens)
        assert (seen["embed_out"] == 0).all()


def test_one_edit_may_be_at_two_sites_and_twice_at_one(tokens):
    model = model_of()
    one = edits.add(torch.ones(()))

    def embedded():
        with record(model, ["embed_out"]) as seen:
            model(tokens)
        return seen["embed_out"]

    plain = embedded()
    with patch(model, {"embed_out": one, "blocks.0.block_in": one}):
        with patch(model, {"embed_out": one}):
            assert torch.allclose(embedded(), plain + 2)
        assert torch.allclose(embedded(), plain + 1), "the outer patch is still there"
    assert not any(site.used for site in sites(model).values())


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("blocks.0.mixer_uot", "no site 'blocks.0.mixer_uot'; did you mean 'blocks.0.mixer_out'?"),
        ("blocks.2.block_in", "no site 'blocks.2.block_in'; did you mean"),
    ],
)
def test_a_mistyped_site_name_is_answered_with_similar_ones(name, line):
    model = model_of()
    for context in (patch(model, {name: edits.zero()}), record(model, [name])):
        with pytest.raises(InvalidInput) as error, context:
            pass
        assert str(error.value).startswith(line)


def test_gradients_flow_through_a_patched_model(tokens):
    model = model_of()
    value = torch.zeros(4, 16, requires_grad=True)
    with patch(model, {"blocks.0.mixer_out": edits.put(value, torch.tensor([1, 2, 3, 4]))}):
        model(tokens).sum().backward()
    assert value.grad.abs().sum() > 0


@pytest.mark.parametrize("architecture", ["mamba", "delta_net"])
def test_the_state_is_materialised_only_while_it_is_recorded(architecture, tokens, monkeypatch):
    module = __import__(f"mecheval.models.mixers.{architecture}", fromlist=["x"])
    name = {"mamba": "selective_states", "delta_net": "delta_states"}[architecture]
    calls = []
    original = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *arguments: calls.append(1) or original(*arguments))
    model = model_of(architecture)
    model(tokens).sum().backward()
    assert not calls
    with record(model, ["blocks.0.mixer.state"]) as seen:
        model(tokens)
    assert len(calls) == 1
    assert seen["blocks.0.mixer.state"].shape[:2] == (4, 12)
