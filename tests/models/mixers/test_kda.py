"""KDA agrees with its recurrence in numpy, with Kimi Linear's, and with its relatives."""

import math

import numpy as np
import pytest
import torch
from support.numpy_reference import (
    Case,
    assert_agreement,
    assert_built_from,
    at_every_shape,
    normalised,
    numbers,
    project,
    sigmoid,
    some_and_all,
)
from support.task_facts import relative_error

from mecheval.models.mixers.delta_net import DeltaNet
from mecheval.models.mixers.gated_delta_net import GatedDeltaNet
from mecheval.models.mixers.kda import KDA
from mecheval.models.ops.per_token import rms_norm_ref
from mecheval.models.ops.recurrence import recurrence_ref
from mecheval.models.ops.short_conv import short_conv_silu_ref

CASES = at_every_shape(
    (4, {}),
    (8, {"heads": 2, "d_conv": 2}),
    (8, {"heads": 2, "expand_k": 0.5, "expand_v": 1.5, "neg_eigval": True}),
    (8, {"heads": 2, "decay": "head"}),
    (4, {"decay": "none", "gate": False}),
    (4, {"norm": False, "d_conv": 0}),
    (4, {"delta": False}),
    (4, {"beta": False}),
    (4, {}, {"dt_bias": 30, "b_proj.weight": 100}),
    (4, {}, {"A_log": 3}),
)


def reference(w, x, heads=1, expand_k=1.0, expand_v=1.0, d_conv=4, **switches):
    """Compute S_t = (I − β k kᵀ) Diag(w) S_{t−1} + β k vᵀ by matrices, as the paper writes it."""
    use = dict.fromkeys(("delta", "beta", "gate", "norm"), True) | switches
    d_key, d_value = (int(expand * x.shape[-1]) // heads for expand in (expand_k, expand_v))
    y, states = np.empty_like(x), np.empty((*x.shape[:2], heads, d_key, d_value))
    for n in range(len(x)):
        q, k, v = (project(w, x[n], which, d_conv).reshape(len(x[n]), heads, -1) for which in "qkv")
        q, k = normalised(q, 1e-6) / math.sqrt(d_key), normalised(k, 1e-6)
        beta = np.ones((len(q), heads))
        if use["beta"]:
            beta = sigmoid(x[n] @ w["b_proj.weight"].T) * (2 if use.get("neg_eigval") else 1)
        keep = decays(w, x[n], use.get("decay", "channel"), heads, d_key)
        S = np.zeros((heads, d_key, d_value))
        for t in range(len(q)):
            for h in range(heads):
                erase = beta[t, h] * np.outer(k[t, h], k[t, h]) if use["delta"] else 0
                S[h] = (np.eye(d_key) - erase) @ np.diag(keep[t, h]) @ S[h]
                S[h] += beta[t, h] * np.outer(k[t, h], v[t, h])
            states[n, t] = S
            o = np.stack([S[h].T @ q[t, h] for h in range(heads)])
            if use["norm"]:
                o = normalised(o, 1e-5 * d_value) * math.sqrt(d_value) * w["o_norm.weight"]
            o = o.flatten()
            if use["gate"]:
                o *= sigmoid(low_rank(w, "g_proj", x[n, t]) + w["g_proj.1.bias"])
            y[n, t] = w["o_proj.weight"] @ o
    return y, states


def low_rank(w, name, x):
    return x @ w[f"{name}.0.weight"].T @ w[f"{name}.1.weight"].T


def decays(w, x, kind, heads, d_key):
    """Return w of every token by head and row of the memory."""
    shape = (len(x), heads, d_key)
    if kind == "none":
        return np.ones(shape)
    steps = np.logaddexp(0, low_rank(w, "a_proj", x) + w["dt_bias"]).reshape(len(x), heads, -1)
    return np.broadcast_to(np.exp(-np.exp(w["A_log"])[:, None] * steps), shape)


@some_and_all(CASES)
def test_the_output_is_the_recurrence(cases):
    for case in cases:
        mixer, x = case.draw(KDA)
        y, states = reference(numbers(mixer), x.double().numpy(), **case.options)
        assert_agreement(case, mixer, x, y, state=states)


@pytest.mark.slow
def test_it_equals_the_mixer_built_from_plain_ops():
    twins = {"layers.short_conv_silu": short_conv_silu_ref, "layers.rms_norm": rms_norm_ref}
    twins |= {"mixers.recurrent.recurrence": recurrence_ref}
    assert_built_from(twins, KDA, CASES)


@pytest.mark.parametrize(("heads", "d_conv"), [(1, 4), (2, 4), (2, 2)])
@torch.no_grad()
def test_carried_weights_give_the_same_output_in_kimi_linear(heads, d_conv):
    module = pytest.importorskip(
        "transformers.models.kimi_linear.modeling_kimi_linear", reason="needs transformers"
    )
    from transformers import KimiLinearConfig

    config = KimiLinearConfig(
        hidden_size=8,
        linear_num_heads=heads,
        linear_head_dim=8 // heads,
        linear_conv_kernel_dim=d_conv,
        rms_norm_eps=1e-5,
        hidden_act="silu",
    )
    peer = module.KimiLinearDeltaAttention(config, 0).double()
    for shape in [(1, 1), (2, 5), (2, 67), (1, 129)]:
        mixer, x = Case(*shape, 8, {"heads": heads, "d_conv": d_conv}).draw(KDA)
        mixer.g_proj[1].bias.zero_()  # transformers has none
        peer.load_state_dict(carried(mixer.double()))
        y = peer(x.double())
        assert relative_error(mixer(x.double()), y) <= 1e-5, "it casts to float32 inside"


def carried(mixer):
    """Return the weights by their names in transformers."""
    w = mixer.state_dict()
    names = {"forget_gate.f_a_proj.weight": "a_proj.0.weight", "g_a_proj.weight": "g_proj.0.weight"}
    names |= {"forget_gate.f_b_proj.weight": "a_proj.1.weight"}
    names |= {"g_b_proj.weight": "g_proj.1.weight", "forget_gate.dt_bias": "dt_bias"}
    same = ["o_norm.weight", *(f"{which}_proj.weight" for which in "qkvbo")]
    return {
        "conv1d.weight": torch.cat([w[f"{which}_conv.weight"] for which in "qkv"]),
        "forget_gate.A_log": w["A_log"].view(1, 1, -1, 1),
        **{there: w[here] for there, here in names.items()},
        **{name: w[name] for name in same},
    }


@torch.no_grad()
def test_it_is_gated_delta_net_of_the_same_decay_without_the_gate():
    options = {"heads": 2, "expand_k": 1.0, "expand_v": 1.0, "gate": False}
    mixer, x = Case(2, 67, 8, options).draw(KDA)
    weights = mixer.double().state_dict()
    down = weights.pop("a_proj.0.weight")
    weights["a_proj.weight"] = weights.pop("a_proj.1.weight") @ down
    relative = GatedDeltaNet(8, 129, decay="channel", **options).double()
    relative.load_state_dict(weights)
    assert relative_error(mixer(x.double()), relative(x.double())) <= 1e-12


@torch.no_grad()
def test_it_is_delta_net_without_decay_and_gate():
    mixer, x = Case(2, 67, 8, {"decay": "none", "gate": False, "heads": 2}).draw(KDA)
    delta_net = DeltaNet(8, 129, heads=2).double()
    weights = {name.replace("o_norm", "norm"): w for name, w in mixer.double().state_dict().items()}
    delta_net.load_state_dict(weights)
    assert relative_error(mixer(x.double()), delta_net(x.double())) <= 1e-12


def test_decays_start_as_published():
    torch.manual_seed(0)
    mixer = KDA(512, 16, heads=128)
    rates, steps = mixer.A_log.exp(), torch.nn.functional.softplus(mixer.dt_bias)
    assert 1 <= rates.min() < 1.5
    assert 15 < rates.max() <= 16
    assert 0.00099 < steps.min() < 0.0012
    assert 0.09 < steps.max() <= 0.1001
