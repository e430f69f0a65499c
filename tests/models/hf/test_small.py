"""A small model of a family is named, sized, trained and resumed as any architecture is."""

from dataclasses import replace

import pytest
import torch
from support.card_runs import made
from support.fault_injection import Reaper, Stopped, result, small

from mecheval.cards.subject import Subject
from mecheval.core.errors import InvalidInput
from mecheval.core.spec import Spec
from mecheval.interventions.verdict import supports_verdict
from mecheval.models.build import build_model
from mecheval.models.config import ModelConfig, layers_for
from mecheval.models.cost import describe_model
from mecheval.models.hf.families import FAMILIES
from mecheval.runs.experiment import Settings
from mecheval.runs.run import run

SPEC = "hf-config:llama,heads=2,kv_heads=1"


def test_a_family_is_written_without_a_name():
    spec = Spec.parse(SPEC)
    assert (spec.name, dict(spec.options)) == (
        "hf-config",
        {"family": "llama", "heads": 2, "kv_heads": 1},
    )
    assert str(spec) == SPEC
    assert Spec.parse("hf-config:family=llama,heads=2,kv_heads=1") == spec
    with pytest.raises(InvalidInput, match="must read option=value"):
        Spec.parse("recall:a-b=1")


def test_width_and_depth_are_those_of_the_model():
    config = ModelConfig("hf-config:jamba,hidden=32,layers=4")
    assert (config.architecture, config.d_model, config.layers) == ("hf-config:jamba", 32, 4)
    assert config == ModelConfig("hf-config:jamba", d_model=32, layers=4)
    assert ModelConfig("hf-config:jamba,layers=4", layers=4) == ModelConfig(
        "hf-config:jamba", layers=4
    )
    assert (layers_for("hf-config:jamba,layers=4"), layers_for("hf-config:jamba")) == (4, 2)
    assert config.packages == ("transformers",)
    assert ModelConfig("mamba").packages == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hf-config:lama", "no family 'lama'; did you mean 'llama'"),
        ("hf-config", "option 'family' is missing"),
        ("hf-config:llama,hidden=66", "hidden=66 must be a multiple of 4"),
        ("hf-config:llama,heads=5", "heads=5 must divide hidden=64"),
        ("hf-config:llama,kv_heads=3", "kv_heads=3 must divide heads=4"),
        ("hf-config:jamba,layers=1", "layers=1 must be at least attention_every=2"),
        ("hf-config:jamba,attention_every=3", "jamba would have no full attention"),
        ("hf-config:llama,layers=x", "layers=x must be an integer"),
        ("hf-config:llama,depth=3", "no option 'depth'"),
    ],
)
def test_an_impossible_size_is_refused(text, reason):
    with pytest.raises(InvalidInput) as error:
        ModelConfig(text)
    assert reason in str(error.value)


def test_a_size_that_is_given_twice_is_refused():
    with pytest.raises(InvalidInput, match="differ; give one of them"):
        ModelConfig("hf-config:llama,layers=4", layers=3)


def test_heads_and_layers_are_as_asked():
    model = build_model(ModelConfig(SPEC, d_model=16, layers=3, max_len=8), 12)
    attention = model.module.model.layers[2].self_attn
    assert (attention.q_proj.out_features, attention.k_proj.out_features) == (16, 8)
    assert (model.depth, model.kinds, model.max_len) == (3, (), 8)
    hybrid = ModelConfig("hf-config:jamba,attention_every=4", d_model=16, layers=4, max_len=8)
    assert build_model(hybrid, 12).kinds == ("mamba", "mamba", "mamba", "attention")


def test_initial_weights_are_scaled_as_asked():
    plain, scaled = (
        build_model(ModelConfig("hf-config:llama", d_model=8, init_linear=factor), 12).state_dict()
        for factor in (1.0, 2.0)
    )
    weight = "module.model.layers.0.mlp.up_proj.weight"
    assert torch.equal(scaled[weight], 2 * plain[weight])


def test_costs_are_counted():
    facts = describe_model(build_model(ModelConfig("hf-config:llama", d_model=8), 12), (16,))
    assert facts.parameters - facts.parameters_without_embedding == 12 * 8
    assert facts.flops_per_token[16] > 0


@pytest.mark.parametrize("family", ["llama", pytest.param("jamba", marks=pytest.mark.slow)])
def test_a_run_stopped_after_any_step_resumes_to_the_same_bytes(family, tmp_path):
    experiment = small(architecture=f"hf-config:{family}", train_steps=5, eval_every=2)
    alone = run(experiment, tmp_path / "alone")
    for step in (1, 3):
        with pytest.raises(Stopped):
            run(experiment, tmp_path / "stopped", Settings(save_every=0.0), [Reaper(step)])
    found = run(experiment, tmp_path / "stopped", Settings(save_every=0.0))
    assert result(found.folder) == result(alone.folder)
    assert "transformers" in found.provenance["made_by"]
    model, tokens = found.load_model(), torch.arange(6).view(1, 6)
    assert torch.equal(model(tokens), alone.load_model()(tokens))
    assert found.verdict is not None
    assert supports_verdict(found.intervene(documents=16))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt2", "xlstm", "zamba2", "minimax", "rwkv"])
def test_weights_tied_or_not_are_saved_and_loaded(family, tmp_path):
    experiment = small(architecture=f"hf-config:{family}", train_steps=2, eval_every=2)
    finished = run(experiment, tmp_path)
    assert finished.status == "done"
    tokens = torch.arange(6).view(1, 6)
    fresh = build_model(experiment.model, experiment.task.vocab_size, experiment.seed)
    assert not torch.equal(finished.load_model()(tokens), fresh(tokens))


@pytest.mark.slow
def test_a_card_is_made_of_a_family(tmp_path):
    card, started = made("hf-config:llama", tmp_path)
    assert card.facts
    assert started


def test_a_card_chooses_the_sizes_itself():
    with pytest.raises(InvalidInput, match=r"gives layers, which a card chooses; leave hidden"):
        Subject.of("hf-config:llama,layers=4")


def test_classes_that_another_package_replaces_are_refused(monkeypatch):
    monkeypatch.setitem(FAMILIES, "llama", replace(FAMILIES["llama"], replaced_by="numpy"))
    with pytest.raises(InvalidInput, match="the package numpy replaces the classes of llama"):
        build_model(ModelConfig("hf-config:llama", d_model=8), 12)
