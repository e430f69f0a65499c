"""What holds for every built-in mixer: its names in docs/weights.md, its promises and sites, how its weights start."""

import math
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import nn

from mecheval.models.config import ModelConfig, build_architecture
from mecheval.models.language_model import Block, LanguageModel
from mecheval.models.layers import ShortConv
from mecheval.models.named import mixers
from mecheval.models.site import record, sites
from mecheval.spec import Spec

WEIGHTS = Path(__file__).parents[2] / "docs" / "weights.md"
VARIANTS = [
    *(Spec("attention", {"heads": heads}) for heads in (1, 2)),
    *(Spec("base_conv", {"kernel": kernel}) for kernel in (1, 3, "long")),
    *(Spec("linear_attention", {"heads": heads, "feature_dim": 3}) for heads in (1, 2)),
    *(Spec("delta_net", {"heads": heads, "d_conv": d_conv}) for heads, d_conv in ((1, 4), (2, 0))),
    *(Spec("h3", {"d_state": 4, "head_dim": head_dim}) for head_dim in (1, 2, 4)),
    *(Spec("hyena", {"filter_order": 3, "short": 2, "skip": skip}) for skip in (False, True)),
    *(Spec("mamba", {"d_state": 3, "d_conv": d_conv}) for d_conv in (0, 2, 4)),
    Spec("mamba", {"d_state": 3, "backend": "torch"}),
]
NAMES = sorted({spec.name for spec in VARIANTS})
every_variant = pytest.mark.parametrize("spec", VARIANTS, ids=str)


def built(spec, d_model=4, max_len=16, dtype=torch.float64):
    """The mixer with every weight away from its start."""
    torch.manual_seed(0)
    mixer = mixers.build(spec, d_model=d_model, max_len=max_len)
    with torch.no_grad():
        for weight in mixer.parameters():
            weight += 0.3 * torch.randn_like(weight)
    return mixer.to(dtype)


def sizes(spec, d_model=4, max_len=16):
    """What the words of docs/weights.md and of the sites' axes stand for."""
    given = {option.name: option.default for option in mixers.describe(spec.name).options} | dict(spec.options)
    known = {"d_model": d_model, "max_len": max_len, "projections": 3 * d_model, "head": given.get("heads")} | given
    if "heads" in given:
        known["d_head"] = known["d_key"] = known["d_value"] = d_model // given["heads"]
    if "head_dim" in given:
        known |= {"head": d_model // given["head_dim"], "ssms": d_model // given["head_dim"]}
        known |= {"pairs": given["d_state"] // 2, "d_key": given["head_dim"], "d_value": given["head_dim"]}
    if "expand" in given:
        known |= {"d_inner": given["expand"] * d_model, "dt_rank": math.ceil(d_model / 16)}
    return known


def table(name):
    """Rows of a mixer's table: name here, name there, shape here, shape there; "" where there is none."""
    section = WEIGHTS.read_text().split(f"## `{name}`\n")[1].split("\n## ")[0]
    rows = [[cell.strip(" `–") for cell in line.split("|")[1:-1]] for line in section.splitlines() if line[:1] == "|"]
    return rows[2:]


def shape(text, known):
    """2·d_inner × d_model, in numbers."""
    return tuple(
        sum(math.prod(int(known.get(word, word)) for word in term.split("·")) for term in axis.split(" + "))
        for axis in text.split(" × ")
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_tables_name_every_parameter_and_nothing_else(name):
    there = [row[1] for row in table(name)]
    here = [row[0] for row in table(name) if row[0]]
    assert all(there)
    assert (len(set(there)), len(set(here))) == (len(there), len(here))
    assert set(here) == {key for spec in VARIANTS if spec.name == name for key in built(spec).state_dict()}


def test_every_mixer_has_a_table():
    assert (
        sorted(re.findall(r"^## `(\w+)`$", WEIGHTS.read_text(), flags=re.MULTILINE)) == NAMES == sorted(mixers.names())
    )


@every_variant
def test_the_tables_give_the_shapes(spec):
    known, rows = sizes(spec), {row[0]: row for row in table(spec.name)}
    for name, weight in built(spec).named_parameters():
        assert tuple(weight.shape) == shape(rows[name][2], known)
        assert weight.numel() == math.prod(shape(rows[name][3] or rows[name][2], known))


def published(spec, d_model, max_len):
    """The mixer in zoology."""
    known = sizes(spec, d_model, max_len)
    heads = {key: known.get("heads") for key in ("num_heads", "num_key_value_heads")}
    name, options = {
        "attention": ("attention.MHA", {"num_heads": known.get("heads"), "bias": False}),
        "base_conv": (
            "base_conv.BaseConv",
            {"kernel_size": -1 if known.get("kernel") == "long" else known.get("kernel")},
        ),
        "linear_attention": (
            "based.Based",
            heads | {"feature_dim": known.get("feature_dim"), "train_view": "quadratic"},
        ),
        "h3": ("h3.H3", {"d_state": known.get("d_state"), "head_dim": known.get("head_dim")}),
        "hyena": ("hyena.Hyena", {"filter_order": 3, "short_filter_order": 2, "bias": known.get("skip")}),
    }[spec.name]
    module, _, cls = name.partition(".")
    length = {} if spec.name == "attention" else {"l_max": max_len}
    reason = "needs a checkout of HazyResearch/zoology on PYTHONPATH, einops and opt_einsum"
    published = pytest.importorskip(f"zoology.mixers.{module}", reason=reason, exc_type=ImportError)
    return getattr(published, cls)(d_model, **length, **options)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("spec", [spec for spec in VARIANTS if spec.name not in ("delta_net", "mamba")], ids=str)
def test_weights_carried_over_to_zoology_give_the_same_output(spec):
    dtype = torch.float32 if spec.name == "h3" else torch.float64  # H3 casts there
    mixer, peer = built(spec, 8, 48, dtype), published(spec, 8, 48).to(dtype)
    ours, theirs, rows = dict(mixer.named_parameters()), peer.state_dict(), table(spec.name)
    shapes = {row[1]: shape(row[3] or row[2], sizes(spec, 8, 48)) for row in rows if row[1] in theirs}
    assert shapes == {key: tuple(weight.shape) for key, weight in theirs.items()}
    carried = {row[1]: ours[row[0]].detach().reshape(shapes[row[1]]) for row in rows if row[0] in ours}
    only_there = {row[1] for row in rows if not row[0] or ("skip" in spec.options and row[0] == "D")}
    assert set(theirs) - set(carried) <= only_there
    peer.load_state_dict(carried, strict=False)
    x = torch.randn(2, 33, 8, dtype=dtype)
    # positions as float32 may differ in the last bit
    positions = spec.name == "hyena" or spec.options.get("kernel") == "long"
    assert differ(mixer(x), peer(x)) <= (1e-5 if spec.name == "h3" else 1e-6 if positions else 1e-10)


@every_variant
def test_gradients_are_those_of_finite_differences(spec):
    assert_right_gradients(built(spec, 4, 5), torch.randn(2, 3, 4))


@pytest.mark.parametrize(
    "name",
    [
        "attention",
        "base_conv",
        "based:feature_dim=2",
        "delta_net",
        "h3:d_state=4",
        "hyena:filter_order=3",
        "mamba:d_state=3",
    ],
)
def test_gradients_of_a_block_are_those_of_finite_differences(name):
    torch.manual_seed(0)
    block = Block(ModelConfig(architecture=name, d_model=4, max_len=5), build_architecture(name), layer=1)
    assert_right_gradients(block.double(), torch.randn(1, 3, 4))


def assert_right_gradients(module, x):
    names, weights = zip(*module.named_parameters(), strict=True)

    def output(x, *weights):
        return torch.func.functional_call(module, dict(zip(names, weights, strict=True)), (x,))

    # the fast mode compares random projections of the Jacobians
    assert torch.autograd.gradcheck(
        output, (x.double().requires_grad_(), *weights), atol=1e-7, rtol=1e-5, fast_mode=True
    )


@every_variant
def test_what_follows_a_token_changes_nothing_before_it(spec):
    mixer, x = built(spec, max_len=300), torch.randn(2, 300, 4, dtype=torch.float64)
    for time, padded in ((1, 2), (5, 16), (16, 67), (67, 300)):
        padding = torch.cat([x[:, :time], torch.randn(2, padded - time, 4, dtype=torch.float64)], dim=1)
        assert differ(mixer(padding)[:, :time], mixer(x[:, :time])) <= 1e-10


@every_variant
def test_rows_of_a_batch_are_apart(spec):
    mixer, x = built(spec), torch.randn(5, 16, 4, dtype=torch.float64)
    together = mixer(x)
    for row in range(5):
        assert differ(mixer(x[row : row + 1]), together[row : row + 1]) <= 1e-10


@every_variant
def test_a_second_call_gives_the_same_bits(spec):
    mixer, x = built(spec), torch.randn(2, 16, 4, dtype=torch.float64)
    first = mixer(x)
    mixer(2 * x.flip(1))
    assert torch.equal(mixer(x), first)


HEADS = "batch time head d_head"
SITES = {
    "attention": {"query": HEADS, "key": HEADS, "value": HEADS, "scores": "batch head time source", "head_out": HEADS},
    "base_conv": {"conv_out": "batch time d_model", "gate_out": "batch time d_model"},
    "linear_attention": {
        "query": "batch time head feature_dim",
        "key": "batch time head feature_dim",
        "value": HEADS,
        "head_out": HEADS,
    },
    "delta_net": {
        "q_conv_out": "batch time d_model",
        "k_conv_out": "batch time d_model",
        "v_conv_out": "batch time d_model",
        "beta": "batch time head",
        "state": "batch time head d_key d_value",
        "head_out": HEADS,
    },
    "h3": {
        "shift_out": "batch time d_model",
        "kv": "batch time head d_key d_value",
        "ssm_out": "batch time head d_key d_value",
    },
    "hyena": {"conv_out": "batch time projections", "long_out": "batch time d_model"},
    "mamba": {
        "conv_out": "batch time d_inner",
        "ssm_out": "batch time d_inner",
        "gate_out": "batch time d_inner",
        "state": "batch time d_inner d_state",
        "dt": "batch time d_inner",
    },
}


@every_variant
def test_sites_have_the_axes_they_declare(spec):
    mixer, x = built(spec), torch.randn(2, 7, 4, dtype=torch.float64)
    silent, known = mixer(x), sizes(spec) | {"batch": 2, "time": 7, "source": 7}
    assert SITES[spec.name].items() <= {name: " ".join(site.axes) for name, site in sites(mixer).items()}.items()
    for name, site in sites(mixer).items():
        with record(mixer, [name]) as seen:
            assert differ(mixer(x), silent) <= 1e-10, "recording must change nothing"
        assert tuple(seen[name].shape) == tuple(known[axis] for axis in site.axes)
        assert seen[name].shape[site.time] == 7


@pytest.mark.parametrize("spec", [spec for spec in VARIANTS if "state" in SITES[spec.name]], ids=str)
def test_looking_at_the_state_changes_no_gradient(spec):
    mixer, x = built(spec, max_len=80), torch.randn(2, 80, 4, dtype=torch.float64, requires_grad=True)
    inputs, probe = (x, *mixer.parameters()), torch.randn(2, 80, 4, dtype=torch.float64)
    silent = torch.autograd.grad((mixer(x) * probe).sum(), inputs)
    with record(mixer, ["state"]):
        looked = torch.autograd.grad((mixer(x) * probe).sum(), inputs)
    assert all(differ(one, other) <= 1e-10 for one, other in zip(silent, looked, strict=True))


def differ(one, other):
    return float((one - other).detach().abs().max() / other.detach().abs().max())


LAYERS = 4
BACKBONE_DRAWS = ["attention", "base_conv", "based", "delta_net", "h3:d_state=64", "hyena:skip=true"]
SCALED = {"attention": {"mixer.out_proj", "mlp.fc2"}, "hyena": {"mixer.out_proj", "mlp.fc2"}}


def model(architecture, d_model=64):
    return LanguageModel(ModelConfig(architecture=architecture, d_model=d_model, layers=LAYERS, max_len=128), 512)


def linears(model):
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}


def pooled(mixers, name):
    return torch.cat([mixer.get_parameter(name).detach().flatten() for mixer in mixers])


def assert_normal(weight, std):
    weight, n = weight.detach(), weight.numel()
    assert float(weight.mean().abs()) < 5 * std / math.sqrt(n)
    assert float(weight.std()) == pytest.approx(std, rel=5 / math.sqrt(2 * n))


def assert_uniform(weight, low, high):
    """Uniform within, and up to both ends: of n draws, none in the last 10/n has a chance of e^−10."""
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
    assert float(fourth.mean()) == pytest.approx(3, abs=5 * math.sqrt(96 / len(fourth)))  # normal, not uniform


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
    assert isinstance(built.blocks[0].norm1, nn.RMSNorm if architecture == "mamba" else nn.LayerNorm)
    assert built.blocks[0].norm1.eps == 1e-5


@pytest.mark.parametrize(("architecture", "width"), [("base_conv", 3), ("delta_net", 4), ("hyena", 3), ("mamba", 4)])
def test_short_convolutions_start_as_torch_starts_them(architecture, width):
    convolutions = [module for module in model(architecture).modules() if isinstance(module, ShortConv)]
    bound = width**-0.5  # each channel has its own taps and nothing else
    assert_uniform(torch.cat([conv.weight.flatten() for conv in convolutions]), -bound, bound)
    biases = [conv.bias for conv in convolutions if conv.bias is not None]
    assert (biases == []) == (architecture == "delta_net")
    if biases:
        assert_uniform(torch.cat(biases), -bound, bound)


def test_mamba_starts_by_itself():
    blocks = model("mamba").blocks
    mambas = [block.mixer for block in blocks]
    assert all(block.mlp is None for block in blocks)
    assert all(torch.equal(mamba.A_log, torch.log(torch.arange(1.0, 17)).expand(128, 16)) for mamba in mambas)
    assert all((mamba.D == 1).all() for mamba in mambas)
    assert_uniform(F.softplus(pooled(mambas, "dt_proj.bias")).log(), math.log(0.001), math.log(0.1))
    bounds = {"dt_proj": 4**-0.5, "in_proj": 64**-0.5, "x_proj": 128**-0.5, "out_proj": (128 * LAYERS) ** -0.5}
    for name, bound in bounds.items():  # fan_in^−½; in dt_proj fan_in is dt_rank
        assert_uniform(pooled(mambas, f"{name}.weight"), -bound, bound)


def test_h3s_state_space_models_start_as_published():
    h3s = [block.mixer for block in model("h3:d_state=64", 128).blocks]
    for h3 in h3s:
        assert torch.equal(h3.shift.B, torch.eye(1, 64).expand(128, 64))
        A = torch.complex(-h3.diagonal.log_A_real.exp(), h3.diagonal.A_imag)
        assert A.detach().numpy() == pytest.approx((-0.5 + 1j * math.pi * torch.arange(32)).expand(64, 32).numpy())
        assert (torch.view_as_complex(h3.diagonal.B) == 1).all()
    assert_uniform(pooled(h3s, "shift.C"), -(64**-0.5), 64**-0.5)
    assert_uniform(pooled(h3s, "diagonal.log_dt"), math.log(0.001), math.log(0.1))
    assert_normal(pooled(h3s, "diagonal.C"), 0.5**0.5)  # a standard complex normal, shared by its two parts
    assert_normal(pooled(h3s, "D_k"), 1)
    assert_normal(pooled(h3s, "D"), 1)


def test_hyenas_filter_starts_as_published():
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
