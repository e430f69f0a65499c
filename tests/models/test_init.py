"""Initial weights of every architecture have the published distributions."""

import math

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import nn

from mecheval.models.config import ModelConfig
from mecheval.models.language_model import LanguageModel
from mecheval.models.layers import ShortConv

LAYERS = 4
BACKBONE_DRAWS = [
    "attention",
    "base_conv",
    "based",
    "delta_net",
    "h3:d_state=64",
    "hyena:skip=true",
]
SCALED = {"attention": {"mixer.out_proj", "mlp.fc2"}, "hyena": {"mixer.out_proj", "mlp.fc2"}}


def model(architecture, d_model=64):
    return LanguageModel(
        ModelConfig(architecture=architecture, d_model=d_model, layers=LAYERS, max_len=128), 512
    )


def linears(model):
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}


def pooled(mixers, name):
    return torch.cat([mixer.get_parameter(name).detach().flatten() for mixer in mixers])


def assert_normal(weight, std):
    weight, n = weight.detach(), weight.numel()
    assert float(weight.mean().abs()) < 5 * std / math.sqrt(n)
    assert float(weight.std()) == pytest.approx(std, rel=5 / math.sqrt(2 * n))


def assert_uniform(weight, low, high):
    """Check that draws are uniform and reach both ends: none in the last 10/n has chance e^−10."""
    within, end = (weight.detach().double().flatten() - low) / (high - low), 10 / weight.numel()
    assert -1e-4 < float(within.min()) < end
    assert 1 - end < float(within.max()) < 1 + 1e-4
    assert stats.kstest(within.numpy(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("architecture", BACKBONE_DRAWS)
def test_linear_weights_are_normal_and_residual_outputs_smaller(architecture):
    together, scaled = [], set()
    for name, module in linears(model(architecture)).items():
        short = name.split(".", 2)[2]  # without blocks.{i}
        residual = short in SCALED.get(architecture.split(":")[0], {"mlp.fc2"})
        scaled |= {short} if residual else set()
        std = 0.02 / math.sqrt(2 * LAYERS) if residual else 0.02
        assert_normal(module.weight, std)
        together.append(module.weight.detach().flatten() / std)
        assert module.bias is None or not module.bias.any()
    assert scaled == SCALED.get(architecture.split(":")[0], {"mlp.fc2"})
    fourth = torch.cat(together) ** 4
    assert float(fourth.mean()) == pytest.approx(
        3, abs=5 * math.sqrt(96 / len(fourth))
    )  # normal, not uniform


@pytest.mark.parametrize("architecture", [*BACKBONE_DRAWS, "mamba"])
def test_embeddings_are_normal_and_norms_the_identity(architecture):
    built = model(architecture)
    assert_normal(built.embedding.weight, 0.02)
    assert (built.positions is not None) == (architecture == "attention")
    if built.positions is not None:
        assert_normal(built.positions.weight, 0.02)
    norms = [module for module in built.modules() if isinstance(module, nn.LayerNorm | nn.RMSNorm)]
    assert len(norms) == 1 + LAYERS * {"mamba": 1, "delta_net": 3}.get(architecture, 2)
    assert all((norm.weight == 1).all() for norm in norms)
    assert isinstance(built.norm, nn.LayerNorm)
    assert isinstance(
        built.blocks[0].norm1, nn.RMSNorm if architecture == "mamba" else nn.LayerNorm
    )
    assert built.blocks[0].norm1.eps == 1e-5


@pytest.mark.parametrize(
    ("architecture", "width"), [("base_conv", 3), ("delta_net", 4), ("hyena", 3), ("mamba", 4)]
)
def test_short_convolutions_are_initialised_as_in_torch(architecture, width):
    convolutions = [
        module for module in model(architecture).modules() if isinstance(module, ShortConv)
    ]
    bound = width**-0.5  # each channel has its own taps and nothing else
    assert_uniform(torch.cat([conv.weight.flatten() for conv in convolutions]), -bound, bound)
    biases = [conv.bias for conv in convolutions if conv.bias is not None]
    assert (biases == []) == (architecture == "delta_net")
    if biases:
        assert_uniform(torch.cat(biases), -bound, bound)


def test_mamba_initialises_itself():
    blocks = model("mamba").blocks
    mambas = [block.mixer for block in blocks]
    assert all(block.mlp is None for block in blocks)
    assert all(
        torch.equal(mamba.A_log, torch.log(torch.arange(1.0, 17)).expand(128, 16))
        for mamba in mambas
    )
    assert all((mamba.D == 1).all() for mamba in mambas)
    assert_uniform(F.softplus(pooled(mambas, "dt_proj.bias")).log(), math.log(0.001), math.log(0.1))
    bounds = {
        "dt_proj": 4**-0.5,
        "in_proj": 64**-0.5,
        "x_proj": 128**-0.5,
        "out_proj": (128 * LAYERS) ** -0.5,
    }
    for name, bound in bounds.items():  # fan_in^−½; in dt_proj fan_in is dt_rank
        assert_uniform(pooled(mambas, f"{name}.weight"), -bound, bound)


@pytest.mark.parametrize("architecture", ["mamba2", "mamba3"])
def test_mamba2_and_mamba3_initialise_themselves(architecture):
    blocks = model(f"{architecture}:head_dim=2").blocks  # 64 heads in each of the mixers
    mixers = [block.mixer for block in blocks]
    assert all((block.mlp is None) == (architecture == "mamba2") for block in blocks)
    assert all(isinstance(block.norm1, nn.RMSNorm) for block in blocks)
    ones = ("D", "o_norm.weight", "B_norm.weight", "C_norm.weight", "B_bias", "C_bias")
    for mixer in mixers:
        found = dict(mixer.named_parameters())
        assert all((found[name] == 1).all() for name in ones if name in found)
    assert_uniform(F.softplus(pooled(mixers, "dt_bias")).log(), math.log(0.001), math.log(0.1))
    names = [name for name, part in mixers[0].named_modules() if isinstance(part, nn.Linear)]
    assert len(names) == {"mamba2": 6, "mamba3": 9}[architecture]
    for name in names:
        bound = (128 * LAYERS) ** -0.5 if name == "out_proj" else 64**-0.5
        assert_uniform(pooled(mixers, f"{name}.weight"), -bound, bound)
    if architecture == "mamba2":
        assert_uniform(pooled(mixers, "A_log").exp(), 1, 16)
        for name in "xBC":
            assert_uniform(pooled(mixers, f"{name}_conv.weight"), -0.5, 0.5)
            assert_uniform(pooled(mixers, f"{name}_conv.bias"), -0.5, 0.5)


def test_h3s_state_space_models_are_initialised_as_published():
    h3s = [block.mixer for block in model("h3:d_state=64", 128).blocks]
    for h3 in h3s:
        assert torch.equal(h3.shift.B, torch.eye(1, 64).expand(128, 64))
        A = torch.complex(-h3.diagonal.log_A_real.exp(), h3.diagonal.A_imag)
        assert A.detach().numpy() == pytest.approx(
            (-0.5 + 1j * math.pi * torch.arange(32)).expand(64, 32).numpy()
        )
        assert (torch.view_as_complex(h3.diagonal.B) == 1).all()
    assert_uniform(pooled(h3s, "shift.C"), -(64**-0.5), 64**-0.5)
    assert_uniform(pooled(h3s, "diagonal.log_dt"), math.log(0.001), math.log(0.1))
    assert_normal(
        pooled(h3s, "diagonal.C"), 0.5**0.5
    )  # a standard complex normal, shared by its two parts
    assert_normal(pooled(h3s, "D_k"), 1)
    assert_normal(pooled(h3s, "D"), 1)


def test_hyenas_filter_is_initialised_as_published():
    hyenas = [block.mixer for block in model("hyena:skip=true").blocks]
    i = torch.arange(128, dtype=torch.float64)
    angle = 1e-4 * 2 * math.pi * i / 128
    for mixer in hyenas:
        assert (mixer.filter.frequency == 1).all()
        expected = torch.stack([i / 127, angle.cos(), -angle.sin()], dim=1)
        assert (mixer.filter.features - expected).abs().max() < 1e-6
        slow, fast = math.log(0.01) / 1.5, math.log(0.01) / 0.3
        decay = [abs(slow + (fast - slow) * channel / 63) for channel in range(64)]
        assert mixer.filter.decay.tolist() == pytest.approx(decay, rel=1e-6)
        assert "filter.decay" not in dict(mixer.named_parameters()), "it is not trained"
        assert mixer.filter.features.requires_grad
    assert_normal(pooled(hyenas, "D"), 1)
