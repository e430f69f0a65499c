"""The RG-LRU's block agrees with its recurrence in numpy and with RecurrentGemma's."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from support.numpy_reference import (
    Case,
    assert_agreement,
    assert_built_from,
    at_every_shape,
    convolve,
    numbers,
    recorded,
    some_and_all,
)
from support.task_facts import relative_error

from mecheval.core.errors import InvalidInput
from mecheval.models.mixers.rg_lru import RGLRU
from mecheval.models.ops.linear_scan import linear_scan_ref
from mecheval.models.site import record

CASES = at_every_shape(
    (4, {}),
    (8, {"heads": 2, "d_conv": 2}),
    (6, {"heads": 3, "expand": 1.5}),
    (3, {"d_conv": 0, "expand": 2.0}),
    (4, {"decay": "constant", "d_conv": 1}),
    (4, {"decay": "none", "gate": False}),
    (4, {"input_gate": False}),
    (4, {"d_conv": 3}, {"Lambda": -30}),  # all is forgotten at once
    (4, {"d_conv": 3}, {"Lambda": 30}),  # nothing is forgotten
    (4, {}, {"a_gate.weight": 100, "i_gate.weight": 100}),
)


def sigmoid(z):
    return np.exp(-np.logaddexp(0, -z))


def blocks(w, name, c):
    """Multiply each head's channels by its block."""
    parts = np.split(c, len(w[f"{name}.weight"]))
    products = [part @ block for part, block in zip(parts, w[f"{name}.weight"], strict=True)]
    return sigmoid(np.concatenate(products) + w[f"{name}.bias"].flatten())


def gelu(z):
    return 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))


def reference(w, x, decay="gated", d_conv=4, **_):
    """Compute the outputs and the memory of the equations at the top of the mixer's file."""
    y, states = np.empty_like(x), np.empty((*x.shape[:2], len(w["x_proj.weight"])))
    for n in range(len(x)):
        stream = x[n] @ w["x_proj.weight"].T + w["x_proj.bias"]
        if d_conv:  # its last tap is on the present token
            stream = convolve(stream, w["conv.weight"][:, 0, ::-1].T) + w["conv.bias"]
        h = np.zeros(stream.shape[1])
        for t, c in enumerate(stream):
            log_a = np.zeros_like(c)
            if decay != "none":
                log_a = -8 * np.logaddexp(0, w["Lambda"])
            if decay == "gated":
                log_a = log_a * blocks(w, "a_gate", c)
            keeps_size = t > 0 and decay != "none"
            scale = np.sqrt(-np.expm1(2 * log_a)) if keeps_size else np.ones_like(c)
            i = blocks(w, "i_gate", c) if "i_gate.weight" in w else 1
            h = np.exp(log_a) * h + scale * i * c
            states[n, t] = h
            z = w["g_proj.weight"] @ x[n, t] + w["g_proj.bias"] if "g_proj.weight" in w else None
            read = h if z is None else h * gelu(z)
            y[n, t] = w["out_proj.weight"] @ read + w["out_proj.bias"]
    return y, states


@some_and_all(CASES)
def test_the_output_is_the_recurrence(cases):
    for case in cases:
        mixer, x = case.draw(RGLRU)
        y, states = reference(numbers(mixer), x.double().numpy(), **case.options)
        assert_agreement(case, mixer, x, y, state=states, lru_out=states)


@torch.no_grad()
def test_single_reads_are_what_forward_returns_there():
    for case in CASES[::5]:
        mixer, x = case.draw(RGLRU)
        mixer, x = mixer.double(), x.double()
        y = mixer(x)
        for t in {0, case.time // 2, case.time - 1}:
            at = torch.full((case.batch, 1), t)
            assert relative_error(mixer.read(x, at), y[:, t : t + 1]) <= 1e-10, (case, t)


@pytest.mark.slow
def test_it_equals_the_mixer_built_from_plain_ops():
    assert_built_from({"mixers.rg_lru.linear_scan": linear_scan_ref}, RGLRU, CASES)


@pytest.mark.parametrize(("factor", "least", "most"), [(-30, -1e4, -10), (30, -1e-9, 0)])
def test_the_cases_reach_both_ends_of_the_decay(factor, least, most):
    (log_a,) = recorded("log_decay", RGLRU, [c for c in CASES if c.scaled == {"Lambda": factor}])
    assert least < float(log_a.min()) <= float(log_a.max()) <= most


@torch.no_grad()
def test_weights_times_values_are_what_is_read():
    for case in CASES[::13]:
        mixer, x = case.draw(RGLRU)
        mixer, x = mixer.double(), x.double()
        with record(mixer, ["lru_out"]) as seen:
            mixer(x)
        weights, values = mixer.mixing(x)
        h = torch.einsum("bcts,bsc->btc", weights, values[..., 0])
        assert relative_error(h, seen["lru_out"]) <= 1e-10, case
        assert not weights.triu(1).any()


THERE = {
    "linear_x.weight": "x_proj.weight",
    "linear_x.bias": "x_proj.bias",
    "linear_y.weight": "g_proj.weight",
    "linear_y.bias": "g_proj.bias",
    "conv_1d.weight": "conv.weight",
    "conv_1d.bias": "conv.bias",
    "rg_lru.recurrent_param": "Lambda",
    "rg_lru.recurrent_gate_weight": "a_gate.weight",
    "rg_lru.recurrent_gate_bias": "a_gate.bias",
    "rg_lru.input_gate_weight": "i_gate.weight",
    "rg_lru.input_gate_bias": "i_gate.bias",
    "linear_out.weight": "out_proj.weight",
    "linear_out.bias": "out_proj.bias",
}


@pytest.mark.parametrize("options", [{}, {"heads": 2, "d_conv": 2}, {"expand": 2.0}], ids=str)
def test_carried_weights_give_the_same_output_and_gradients_in_recurrent_gemma(options):
    module = pytest.importorskip(
        "transformers.models.recurrent_gemma.modeling_recurrent_gemma", reason="needs transformers"
    )
    from transformers import RecurrentGemmaConfig

    for batch, time in [(1, 1), (2, 2), (2, 5), (2, 67), (1, 129)]:
        mixer, x = Case(batch, time, 8, options).draw(RGLRU)
        mixer, x = mixer.double(), x.double()
        config = RecurrentGemmaConfig(
            hidden_size=8,
            lru_width=mixer.d_rnn,
            num_attention_heads=mixer.heads,
            conv1d_width=mixer.d_conv,
        )
        peer = module.RecurrentGemmaRecurrentBlock(config, 0).double()
        # else it sums in float32
        peer.rg_lru._rnn_scan = partial(peer.rg_lru._rnn_scan, acc_dtype=torch.float64)
        weights = mixer.state_dict()
        peer.load_state_dict({there: weights[here] for there, here in THERE.items()})
        positions = torch.arange(time).expand(batch, -1)
        y, _ = peer(x, positions, None, use_cache=False)
        assert relative_error(mixer(x), y) <= 1e-10
        ours, theirs = dict(mixer.named_parameters()), dict(peer.named_parameters())
        loss = torch.randn(y.shape, dtype=y.dtype)
        names = [(there, here) for there, here in THERE.items() if time > 1 or "rec" not in there]
        exact = torch.autograd.grad((y * loss).sum(), [theirs[there] for there, _ in names])
        result = torch.autograd.grad((mixer(x) * loss).sum(), [ours[here] for _, here in names])
        for (name, _), one, other in zip(names, result, exact, strict=True):
            assert relative_error(one, other, least=1e-6) <= 1e-8, name


@torch.no_grad()
def test_without_decay_and_gates_it_is_a_sum_of_what_the_convolution_gives():
    options = {"decay": "none", "input_gate": False, "gate": False}
    mixer, x = Case(2, 67, 4, options).draw(RGLRU)
    mixer, x = mixer.double(), x.double()
    y = mixer.out_proj(mixer.conv(mixer.x_proj(x)).cumsum(dim=1))
    assert relative_error(mixer(x), y) <= 1e-12


def test_rates_are_drawn_as_published():
    torch.manual_seed(0)
    a = torch.exp(-torch.nn.functional.softplus(RGLRU(4096, 8, heads=4096).Lambda))
    squares = (a.detach() ** 2 - 0.9**2) / (0.999**2 - 0.9**2)
    assert -1e-3 < float(squares.min()) < 0.01
    assert 0.99 < float(squares.max()) < 1.001
    assert float(squares.mean()) == pytest.approx(0.5, abs=0.02)


def test_options_that_do_not_fit_are_refused_by_name():
    with pytest.raises(InvalidInput, match=r"expand=1.5 times d_model=4 must be a multiple of he"):
        RGLRU(4, 8, heads=4, expand=1.5)
    with pytest.raises(InvalidInput, match=r"expand=1.1 times d_model=4 .*; it is 4.4"):
        RGLRU(4, 8, expand=1.1)
