"""Models carried into transformers' classes give the same logits there, also from a folder."""

import pytest
import torch

from mecheval.core.errors import InvalidInput
from mecheval.models.config import ModelConfig
from mecheval.models.hf.export import to_transformers
from mecheval.models.language_model import LanguageModel

pytest.importorskip("transformers", reason="transformers is not installed: mecheval[hf]")

DELTA = "hybrid:gated_delta_net{},final_norm=rms,mlp=false,norm=rms"
TWINS = {
    "attention": "GPT2LMHeadModel",
    "attention:heads=4": "GPT2LMHeadModel",
    "transformer:final_norm=rms": "LlamaForCausalLM",
    "transformer:final_norm=rms,heads=4,kv_heads=2,rotary_base=500.0": "LlamaForCausalLM",
    "mamba:final_norm=rms": "MambaForCausalLM",
    "mamba:d_conv=0,d_state=4,final_norm=rms": "MambaForCausalLM",
    "mamba:d_conv=2,final_norm=rms": "MambaForCausalLM",
    "mamba2:final_norm=rms": "Mamba2ForCausalLM",
    "mamba2:d_conv=0,final_norm=rms": "Mamba2ForCausalLM",
    DELTA.format(""): "Qwen3NextForCausalLM",
    DELTA.format("[d_conv=0,heads=2]"): "Qwen3NextForCausalLM",
}
QUICK = ("attention:heads=4", "mamba:final_norm=rms")
NONE = {
    "mamba": "final_norm=layer; Mamba has final_norm=rms",
    "transformer": "final_norm=layer; Llama has final_norm=rms",
    "attention:window=3": "window=3; GPT2 has window=0",
    "attention:sconv=A": "sconv=A; GPT2 has sconv=",
    "gated_delta_net": "mlp=true; Qwen3Next has mlp=false",
    "mamba2:final_norm=rms,gate=false": "gate=false; Mamba2 has gate=true",
    "based": "all have one mixer of attention, mamba, mamba2, gated_delta_net",
    "hybrid:mamba+attention": "all have one mixer",
    "parallel:mamba|attention": "all have one mixer",
}


def built(architecture):
    """Return a model whose norms and biases are not what they begin as."""
    config = ModelConfig(architecture, d_model=32, layers=2, max_len=64, init_embedding=10.0)
    model = LanguageModel(config, vocab_size=20)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(1)
        for name, weight in model.named_parameters():
            if "norm" in name or "bias" in name:
                weight += 0.3 * torch.randn_like(weight)
    return model


def some_tokens():
    return torch.randint(20, (3, 33), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "architecture",
    [text if text in QUICK else pytest.param(text, marks=pytest.mark.slow) for text in TWINS],
)
@torch.no_grad()
def test_the_logits_are_the_same_there_and_from_a_folder(architecture, tmp_path):
    from transformers import AutoModelForCausalLM

    model, tokens = built(architecture), some_tokens()
    there = to_transformers(model)
    assert type(there).__name__ == TWINS[architecture]
    expected = model(tokens)
    assert expected.std() > 0.1
    assert (there(tokens).logits - expected).abs().max() <= 1e-5
    there.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert (again(tokens).logits - expected).abs().max() <= 1e-5


@torch.no_grad()
def test_every_weight_is_carried():
    """A weight that was left at its start would not follow ours."""
    for architecture in QUICK:
        model = built(architecture)
        before = to_transformers(model)(some_tokens()).logits
        for name, weight in model.named_parameters():
            kept = weight.clone()
            weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(2))
            moved = (to_transformers(model)(some_tokens()).logits - before).abs().max()
            assert moved > 1e-6, name
            weight.copy_(kept)


def test_the_generator_is_left_as_it_was():
    model = built("attention")
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    to_transformers(model)
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("architecture", NONE)
def test_an_architecture_without_a_twin_is_refused_with_the_reason(architecture):
    model = LanguageModel(ModelConfig(architecture, d_model=32), vocab_size=20)
    with pytest.raises(InvalidInput) as refused:
        to_transformers(model)
    assert NONE[architecture] in str(refused.value)
    assert f"model={model.config.architecture} has no twin" in str(refused.value)
