import pytest
import torch

from mecheval.core.errors import InvalidInput
from mecheval.core.spec import Spec
from mecheval.models.config import ModelConfig, build_architecture
from mecheval.models.language_model import LanguageModel
from mecheval.models.ops import gather_reads
from mecheval.models.registries import architectures, mixers
from mecheval.models.site import patch, record

EVERY = ["attention", "base_conv", "based", "delta_net", "h3:d_state=32", "hyena", "mamba"]
EVERY += ["gated_delta_net", "mamba2", "mamba3"]
# architectures whose pattern is not an option
FIXED = [name for name in architectures.names() if name not in ("hybrid", "parallel")]
ABLATIONS = [
    *(f"mamba:d_conv={n}" for n in range(5)),
    *(f"based:kernel={k}" for k in (1, 2, 3, 4, "long")),
]
ABLATIONS += [f"{name}:positions={flag}" for name in FIXED for flag in ("true", "false")]


def model_of(architecture, layers=2, d_model=16, vocab=40, seed=0, **options):
    return LanguageModel(
        ModelConfig(architecture=architecture, d_model=d_model, layers=layers, **options),
        vocab,
        seed,
    )


@pytest.fixture
def tokens():
    return torch.randint(0, 40, (3, 17), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("architecture", EVERY)
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_logits_are_returned_only_where_they_are_read(architecture, layers, tokens):
    model = model_of(architecture, layers).double()
    at = torch.tensor([[0, 16], [5, 5], [16, 1]])
    everywhere = model(tokens)
    assert everywhere.shape == (3, 17, 40)
    assert (model(tokens, at) - gather_reads(everywhere, at)).abs().max() < 1e-12


@pytest.mark.parametrize("architecture", EVERY)
def test_only_the_read_positions_are_computed_after_the_last_mixer(architecture, tokens):
    model = model_of(architecture)
    seen = []
    model.norm.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].shape[1]))
    if model.blocks[-1].mlp is not None:
        model.blocks[-1].mlp.register_forward_pre_hook(
            lambda module, inputs: seen.append(inputs[0].shape[1])
        )
    model(tokens, torch.tensor([[3], [4], [5]]))
    assert set(seen) == {1}


def test_sites_after_the_last_mixer_see_every_position(tokens):
    model = model_of("attention").double()
    at = torch.tensor([[3], [4], [5]])
    plain = model(tokens, at)
    for name in ("blocks.1.mlp_in", "blocks.1.mlp_out", "blocks.1.block_out", "final_in"):
        with record(model, [name]) as seen:
            assert (model(tokens, at) - plain).abs().max() < 1e-12
        assert seen[name].shape[1] == 17


@pytest.mark.parametrize("architecture", EVERY)
def test_padding_on_the_right_changes_nothing(architecture, tokens):
    model = model_of(architecture).double()
    padded = torch.cat([tokens, torch.zeros(3, 9, dtype=torch.long)], dim=1)
    assert (model(padded)[:, :17] - model(tokens)).abs().max() < 1e-12


@pytest.mark.parametrize("architecture", ABLATIONS)
def test_every_ablation_of_the_paper_builds_and_learns(architecture, tokens):
    architecture = architecture.replace("h3:", "h3:d_state=16,")
    model = model_of(architecture)
    loss = torch.nn.functional.cross_entropy(model(tokens)[:, -1], tokens[:, 0])
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("name", FIXED)
def test_the_positions_option_adds_position_embeddings(name):
    for flag in (True, False):
        architecture = build_architecture(Spec(name, {"positions": flag}))
        assert architecture.positions is flag
    assert build_architecture(name).positions is (name == "attention")
    options = ",d_state=16" if name == "h3" else ""
    assert model_of(f"{name}:positions=true{options}").positions is not None
    assert model_of(f"{name}:positions=false{options}").positions is None


def test_patterns_are_tiled_over_the_layers():
    kinds = [type(block.mixer).__name__ for block in model_of("based", layers=3).blocks]
    assert kinds == ["BaseConv", "LinearAttention", "BaseConv"]
    long = [block.mixer.filter is not None for block in model_of("base_conv", layers=4).blocks]
    assert long == [False, True, False, True]


def test_a_mixer_by_itself_is_an_architecture():
    assert [type(block.mixer).__name__ for block in model_of("linear_attention").blocks] == [
        "LinearAttention"
    ] * 2
    assert set(mixers.names()) >= {
        "attention",
        "base_conv",
        "linear_attention",
        "delta_net",
        "h3",
        "hyena",
        "mamba",
    }


@pytest.mark.parametrize("architecture", EVERY)
def test_weights_depend_on_the_seed_only(architecture):
    torch.manual_seed(123)
    state = torch.random.get_rng_state()
    one, same, other = (model_of(architecture, seed=seed) for seed in (7, 7, 8))
    assert torch.equal(torch.random.get_rng_state(), state), "the global generator is not advanced"
    pairs = zip(one.state_dict().values(), same.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(one.embedding.weight, other.embedding.weight)


def test_the_head_is_the_embedding(tokens):
    model = model_of("attention")
    with record(model, ["final_in"]) as seen:
        logits = model(tokens)
    assert torch.allclose(
        logits, model.norm(seen["final_in"]) @ model.embedding.weight.t(), atol=1e-6
    )
    assert "head" not in dict(model.named_children())


def test_init_options_scale_the_initial_weights():
    plain = model_of("attention", d_model=64, vocab=500)
    scaled = model_of("attention", d_model=64, vocab=500, init_linear=3.0, init_embedding=5.0)
    assert torch.allclose(scaled.embedding.weight, 5 * plain.embedding.weight)
    assert torch.allclose(
        scaled.blocks[0].mixer.qkv_proj.weight, 3 * plain.blocks[0].mixer.qkv_proj.weight
    )


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: model_of("mmaba"), "no architecture named 'mmaba'; did you mean 'mamba'"),
        (lambda: model_of("mamba:d_covn=2"), "mamba: no option 'd_covn'; did you mean 'd_conv'"),
        (lambda: model_of("mamba:d_conv=99"), "mamba: d_conv=99 must be an integer from 0 to 16"),
        (
            lambda: model_of("mamba:backend=cuda"),
            "mamba: backend=cuda must be one of auto, torch, numba, mamba_ssm",
        ),
        (lambda: model_of("attention:heads=3"), "heads=3 must divide d_model=16"),
        (lambda: model_of("h3:head_dim=3"), "head_dim=3 must divide d_model=16"),
        (lambda: model_of("attention", layers=0), "layers=0 must be an integer from 1"),
        (
            lambda: model_of("attention", max_len=8)(torch.zeros(1, 9, dtype=torch.long)),
            "length=9 must be at most max_len=8",
        ),
        (
            lambda: model_of("attention")(torch.full((1, 2), 40)),
            "tokens 40 … 40 must be from 0 and below vocab_size=40",
        ),
        (lambda: model_of("attention")(torch.full((1, 2), -1)), "tokens -1 … -1 must be from 0"),
    ],
)
def test_invalid_input_is_rejected_in_one_line(call, line):
    with pytest.raises(InvalidInput) as error:
        call()
    assert len(error.value.problems) == 1
    assert line in str(error.value)


def test_an_edit_reaches_the_logits(tokens):
    model = model_of("mamba")
    before = model(tokens)
    with patch(model, {"blocks.0.mixer.conv_out": lambda x, site: x * 0}):
        assert not torch.allclose(model(tokens), before)
