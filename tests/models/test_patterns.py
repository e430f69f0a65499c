"""Patterns of mixers are read, printed in one way, tiled over the layers, and refused if wrong."""

import pytest
import torch

from mecheval.core.errors import InvalidInput
from mecheval.core.spec import Spec
from mecheval.models.config import ModelConfig, build_architecture
from mecheval.models.language_model import LanguageModel
from mecheval.models.patterns import parse_pattern, print_pattern
from mecheval.models.site import patch, record, sites


def names(text):
    return ["|".join(mixer.name for mixer in layer) for layer in parse_pattern(text)]


def test_a_pattern_is_a_list_of_layers():
    assert names("mamba*3+attention") == ["mamba", "mamba", "mamba", "attention"]
    assert names("attention|mamba[d_conv=2,d_state=8]*2+h3") == ["attention|mamba"] * 2 + ["h3"]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("mamba+mamba+attention", "mamba*2+attention"),
        ("mamba*1", "mamba"),
        ("attention[heads=1]|mamba[d_conv=4]", "attention|mamba"),
        ("mamba[d_state=8,d_conv=2]", "mamba[d_conv=2,d_state=8]"),
    ],
)
def test_all_ways_to_write_a_pattern_are_one_experiment(text, canonical):
    assert print_pattern(parse_pattern(text)) == canonical
    config = ModelConfig(f"hybrid:{text}", layers=3)
    assert config == ModelConfig(f"hybrid:{canonical}", layers=3)
    assert ModelConfig(config.architecture, layers=3) == config


def test_a_spec_with_a_pattern_is_read_again_from_its_text():
    spec = Spec.parse("hybrid:mamba[d_conv=2,d_state=8]*3+attention,norm=rms")
    assert spec.options["pattern"] == "mamba[d_conv=2,d_state=8]*3+attention"
    assert spec.options["norm"] == "rms"
    assert Spec.parse(str(spec)) == spec
    odd = Spec("hybrid", {"pattern": "a, b="})
    assert Spec.parse(str(odd)) == odd


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("hybrid:mambo", "did you mean 'mamba'?"),
        ("hybrid:mamba**2", "'mamba**2'"),
        ("hybrid:mamba*0", "'mamba*0'"),
        ("hybrid:mamba*2+", "'mamba*2+'"),
        ("hybrid:mamba[d_conv=99]", "mamba: d_conv=99"),
        ("hybrid:mamba[taps=2]", "mamba: no option 'taps'"),
        ("hybrid:mamba*3+attention", "use at least 4"),
        ("hybrid:mamba,mlp=false,sconv=C", "mamba has no MLP"),
        ("hybrid", "'pattern' is missing"),
        ("parallel:attention|", "'attention|'"),
        ("parallel:attention+mamba", "'attention+mamba'"),
    ],
)
def test_a_wrong_pattern_is_refused_in_one_line_that_names_the_part(text, named):
    with pytest.raises(InvalidInput) as refused:
        ModelConfig(text)
    assert named in str(refused.value)
    assert len(refused.value.problems) == 1


def build(text, layers=4, **options):
    config = ModelConfig(text, d_model=8, layers=layers, max_len=32, **options)
    return LanguageModel(config, vocab_size=12).double()


def test_the_pattern_is_tiled_over_the_layers():
    model = build("hybrid:mamba+attention", layers=5)
    kinds = [type(block.mixer).__name__ for block in model.blocks]
    assert kinds == ["Mamba", "Attention", "Mamba", "Attention", "Mamba"]


def test_a_hybrid_of_one_mixer_is_that_mixer():
    alone = build("gated_delta_net", layers=2)
    hybrid = build("hybrid:gated_delta_net", layers=2)
    assert list(alone.state_dict()) == list(hybrid.state_dict())
    tokens = torch.randint(12, (2, 9))
    assert torch.equal(alone(tokens), hybrid(tokens))


@pytest.mark.parametrize(
    ("text", "layers", "kinds"),
    [
        ("attention:heads=2", 2, ()),
        ("hybrid:attention", 3, ()),
        ("parallel:attention|mamba", 2, ()),
        ("based", 2, ("base_conv", "linear_attention")),
        ("based", 1, ()),
        ("base_conv", 2, ("base_conv", "base_conv[kernel=long]")),
        ("hybrid:mamba*2+attention[window=16]", 4, ("mamba", "mamba", "attention", "mamba")),
        ("hybrid:mamba+attention[heads=2]|mamba", 2, ("mamba", "attention|mamba")),
        ("hybrid:attention[window=2]+attention", 2, ("attention[window=2]", "attention")),
    ],
)
def test_layers_that_differ_are_named_by_their_mixers(text, layers, kinds):
    assert build_architecture(text).kinds(layers) == kinds


def test_mixers_side_by_side_add_their_outputs():
    model = build("parallel:attention|mamba", layers=1)
    tokens = torch.randint(12, (2, 9))
    outs = [f"blocks.0.{name}" for name in ("mixer.attention_out", "mixer.mamba_out", "mixer_out")]
    with record(model, outs) as seen:
        model(tokens)
    attention, mamba, together = (seen[name] for name in outs)
    assert torch.equal(attention + mamba, together)
    assert {"blocks.0.mixer.attention.query", "blocks.0.mixer.mamba.state"} < set(sites(model))


def test_two_mixers_of_a_kind_have_names_of_their_own():
    model = build("parallel:mamba|mamba", layers=1)
    assert "blocks.0.mixer.mamba_2_out" in sites(model)


@pytest.mark.parametrize("text", ["hybrid:mamba*2+attention|gated_delta_net", "parallel:h3|hyena"])
def test_reading_some_positions_gives_the_logits_there(text):
    model, tokens = build(text), torch.randint(12, (2, 20))
    at = torch.tensor([[3, 19], [0, 7]])
    whole = model(tokens).gather(1, at[..., None].expand(-1, -1, 12))
    assert (model(tokens, at) - whole).abs().max() < 1e-12


def test_the_state_of_a_parallel_layer_is_that_of_its_mixers():
    parallel = build("parallel:attention|mamba", layers=1).blocks[0].mixer
    assert parallel.state_size(7) == sum(mixer.state_size(7) for mixer in parallel.mixers)


def test_linear_weights_of_mamba_start_as_its_own_also_in_a_hybrid():
    torch.manual_seed(0)
    config = ModelConfig("hybrid:mamba+attention", d_model=64, layers=2)
    mamba, attention = LanguageModel(config, vocab_size=12).blocks
    assert mamba.mixer.in_proj.weight.abs().max() <= 64**-0.5, "uniform, as torch draws it"
    assert 0.018 < attention.mixer.qkv_proj.weight.std() < 0.022
    assert 0.018 < mamba.mlp.fc1.weight.std() < 0.022


def test_an_edit_of_one_path_leaves_the_other():
    model, tokens = build("parallel:attention|mamba", layers=1), torch.randint(12, (2, 9))
    with record(model, ["blocks.0.mixer.attention_out", "blocks.0.mixer_out"]) as seen:
        model(tokens)
    with (
        patch(model, {"blocks.0.mixer.mamba_out": lambda x, site: 0 * x}),
        record(model, ["blocks.0.mixer_out"]) as alone,
    ):
        model(tokens)
    assert torch.equal(alone["blocks.0.mixer_out"], seen["blocks.0.mixer.attention_out"])
