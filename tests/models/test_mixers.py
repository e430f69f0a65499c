"""Every built-in mixer has correct gradients, is causal, keeps rows and declares its sites."""

import pytest
import torch
from support.mixer_variants import VARIANTS, built, every_variant, sizes
from support.task_facts import relative_error

from mecheval.models.config import ModelConfig, build_architecture
from mecheval.models.language_model import Block
from mecheval.models.site import record, sites


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
        "gated_delta_net",
        "h3:d_state=4",
        "hyena:filter_order=3",
        "mamba:d_state=3",
        "mamba2:head_dim=4,d_state=3",
        "mamba3:head_dim=4,d_state=4",
    ],
)
def test_gradients_of_a_block_are_those_of_finite_differences(name):
    torch.manual_seed(0)
    block = Block(
        ModelConfig(architecture=name, d_model=4, max_len=5), build_architecture(name), layer=1
    )
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
def test_later_tokens_change_nothing_before_them(spec):
    mixer, x = built(spec, max_len=300), torch.randn(2, 300, 4, dtype=torch.float64)
    for time, padded in ((1, 2), (5, 16), (16, 67), (67, 300)):
        padding = torch.cat(
            [x[:, :time], torch.randn(2, padded - time, 4, dtype=torch.float64)], dim=1
        )
        assert relative_error(mixer(padding)[:, :time], mixer(x[:, :time])) <= 1e-10


@every_variant
def test_rows_of_a_batch_are_independent(spec):
    mixer, x = built(spec), torch.randn(5, 16, 4, dtype=torch.float64)
    together = mixer(x)
    for row in range(5):
        assert relative_error(mixer(x[row : row + 1]), together[row : row + 1]) <= 1e-10


@every_variant
def test_a_second_call_gives_the_same_bits(spec):
    mixer, x = built(spec), torch.randn(2, 16, 4, dtype=torch.float64)
    first = mixer(x)
    mixer(2 * x.flip(1))
    assert torch.equal(mixer(x), first)


HEADS = "batch time head d_head"
SITES = {
    "attention": {
        "query": HEADS,
        "key": HEADS,
        "value": HEADS,
        "scores": "batch head time source",
        "head_out": HEADS,
    },
    "base_conv": {"gate_out": "batch time d_model"},  # and conv_out or long_out
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
    "gated_delta_net": {
        "q_conv_out": "batch time key_width",
        "k_conv_out": "batch time written_keys",
        "v_conv_out": "batch time written_values",
        "state": "batch time head d_key d_value",
        "head_out": "batch time head d_value",
    },  # and strength and log_decay
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
    "mamba2": {
        "x_conv_out": "batch time d_inner",
        "B_conv_out": "batch time group d_state",
        "C_conv_out": "batch time group d_state",
        "dt": "batch time head",
        "state": "batch time head d_key d_value",
        "head_out": "batch time head d_value",
        "gate_out": "batch time d_inner",
    },  # and log_decay
    "mamba3": {
        "value": "batch time head d_value",
        "key": "batch time head d_key",
        "query": "batch time head d_key",
        "dt": "batch time head",
        "state": "batch time head d_key d_value",
        "head_out": "batch time head d_value",
        "gate_out": "batch time d_inner",
    },  # and share, angle, log_decay, x_conv_out, B_conv_out and C_conv_out
}


@every_variant
def test_sites_have_the_axes_they_declare(spec):
    mixer, x = built(spec), torch.randn(2, 7, 4, dtype=torch.float64)
    silent, known = mixer(x), sizes(spec) | {"batch": 2, "time": 7, "source": 7}
    assert (
        SITES[spec.name].items()
        <= {name: " ".join(site.axes) for name, site in sites(mixer).items()}.items()
    )
    for name, site in sites(mixer).items():
        with record(mixer, [name]) as seen:
            assert relative_error(mixer(x), silent) <= 1e-10, "recording must change nothing"
        assert tuple(seen[name].shape) == tuple(known[axis] for axis in site.axes)
        assert seen[name].shape[site.time] == 7


@pytest.mark.parametrize(
    "spec", [spec for spec in VARIANTS if "state" in SITES[spec.name]], ids=str
)
def test_recording_the_state_changes_no_gradient(spec):
    mixer, x = (
        built(spec, max_len=80),
        torch.randn(2, 80, 4, dtype=torch.float64, requires_grad=True),
    )
    inputs, probe = (x, *mixer.parameters()), torch.randn(2, 80, 4, dtype=torch.float64)
    silent = torch.autograd.grad((mixer(x) * probe).sum(), inputs)
    with record(mixer, ["state"]):
        recorded = torch.autograd.grad((mixer(x) * probe).sum(), inputs)
    assert all(
        relative_error(one, other) <= 1e-10 for one, other in zip(silent, recorded, strict=True)
    )
