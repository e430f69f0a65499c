"""mLSTM agrees with its published form, which is stabilised, in numpy and with transformers'."""

import numpy as np
import pytest
import torch
from support.numpy_reference import (
    PRECISION,
    Case,
    assert_agreement,
    assert_built_from,
    at_every_shape,
    convolve,
    numbers,
    silu,
    some_and_all,
)
from support.task_facts import relative_error

from mecheval.core.errors import InvalidInput
from mecheval.models.edits import put
from mecheval.models.mixers.mlstm import MLSTM
from mecheval.models.ops.recurrence import recurrence_ref
from mecheval.models.ops.short_conv import short_conv_silu_ref
from mecheval.models.site import patch, record

WRITING = {"input_bias": 1.0}  # begins with weights that the normaliser has to divide by
CASES = at_every_shape(
    (8, {}),
    (8, WRITING),
    (8, {"heads": 2, "d_conv": 4, **WRITING}),
    (6, {"heads": 3, "d_conv": 2, "expand_k": 1.0, "expand_v": 2.0, **WRITING}),
    (8, {"input_gate": "sigmoid", "normaliser": False}),
    (8, {"input_gate": "none", "decay": "constant", "soft_cap": 4.0}),
    (4, {"decay": "none", "gate": False, **WRITING}),
    (4, {"norm": False, "heads": 4, "expand_k": 1.0, "d_conv": 1, **WRITING}),
    (8, {"soft_cap": 50.0, "norm": False}, {"i_bias": 4, "f_bias": -8}),
)


def log_sigmoid(z):
    return -np.logaddexp(0, -z)


def reference(w, x, heads=1, d_conv=0, soft_cap=15.0, **switches):
    """Compute the outputs and the memory as published: divided by exp(m), the largest weight."""
    y, states = np.empty_like(x), []
    for n in range(len(x)):
        source = x[n]
        if d_conv:
            taps = w["conv.weight"][:, 0, ::-1].T
            source = silu(convolve(source, taps) + w["conv.bias"])
        q, k = (source @ w[f"{name}_proj.weight"].T for name in "qk")
        v = x[n] @ w["v_proj.weight"].T
        q, k, v = (z.reshape(len(z), heads, -1) for z in (q, k, v))
        C, sums, m = np.zeros((heads, k.shape[2], v.shape[2])), np.zeros(k.shape[1:]), 0
        for t in range(x.shape[1]):
            log_i, log_f = gates(w, x[n, t], heads, soft_cap, switches)
            top = np.maximum(log_f + m, log_i)
            f, i, m = np.exp(log_f + m - top), np.exp(log_i - top), top
            C = f[:, None, None] * C + i[:, None, None] * k[t][:, :, None] * v[t][:, None, :]
            sums = f[:, None] * sums + i[:, None] * k[t]
            h = np.einsum("hk,hkv->hv", q[t], C) / np.sqrt(k.shape[2])
            below = np.exp(-m)
            if switches.get("normaliser", True):
                weight = np.einsum("hk,hk->h", q[t], sums) / np.sqrt(k.shape[2])
                below = np.maximum(abs(weight), below)
                states.append(np.concatenate([C, sums[..., None]], axis=-1))
            else:
                states.append(C)
            states[-1] = states[-1] * np.exp(m)[:, None, None]
            y[n, t] = output(w, x[n, t], h / below[:, None], switches)
    return y, np.reshape(states, (*x.shape[:2], *states[0].shape))


def gates(w, x, heads, soft_cap, switches):
    """Return log i and log f of every head."""

    def cap(name):
        z = w[f"{name}_bias"] + (w[f"{name}_proj.weight"] @ x if f"{name}_proj.weight" in w else 0)
        return soft_cap * np.tanh(z / soft_cap)

    kind, zeros = switches.get("input_gate", "exponential"), np.zeros(heads)
    log_f = zeros if switches.get("decay") == "none" else log_sigmoid(cap("f"))
    if kind == "none":
        return zeros, log_f
    return (cap("i") if kind == "exponential" else log_sigmoid(cap("i"))), log_f


def output(w, x, h, switches):
    if switches.get("norm", True):
        h = h - h.mean(-1, keepdims=True)
        h = h / np.sqrt((h * h).mean(-1, keepdims=True) + 1e-6)
    h = h.flatten() * w.get("o_norm.weight", 1)
    if switches.get("gate", True):
        h = h / (1 + np.exp(-w["g_proj.weight"] @ x))
    return w["out_proj.weight"] @ h


@some_and_all(CASES)
def test_the_output_is_that_of_the_stabilised_recurrence(cases):
    for case in cases:
        mixer, x = case.draw(MLSTM)
        y, states = reference(numbers(mixer), x.double().numpy(), **case.options)
        assert_agreement(case, mixer, x, y, state=states)


@pytest.mark.slow
def test_it_equals_the_mixer_built_from_plain_ops():
    twins = {"layers.short_conv_silu": short_conv_silu_ref}
    twins |= {"mixers.recurrent.recurrence": recurrence_ref}
    assert_built_from(twins, MLSTM, CASES)


THERE = {
    "q.weight": "q_proj.weight",
    "k.weight": "k_proj.weight",
    "v.weight": "v_proj.weight",
    "igate_preact.weight": "i_proj.weight",
    "igate_preact.bias": "i_bias",
    "fgate_preact.weight": "f_proj.weight",
    "fgate_preact.bias": "f_bias",
    "ogate_preact.weight": "g_proj.weight",
    "multihead_norm.weight": "o_norm.weight",
    "out_proj.weight": "out_proj.weight",
}


def published(heads, **config):
    """Build the layer in transformers."""
    module = pytest.importorskip(
        "transformers.models.xlstm.modeling_xlstm", reason="needs transformers"
    )
    if module.external_xlstm:
        pytest.skip("the package xlstm replaces the layer of transformers")
    from transformers import xLSTMConfig

    return module.xLSTMLayer(xLSTMConfig(hidden_size=16, num_heads=heads, **config))


def carried(mixer):
    return {there: mixer.state_dict()[here] for there, here in THERE.items()}


# without the ε that is added there to a normaliser of at least exp(−m); it is in no equation
CHUNKS = {"mode": "train", "eps": 0.0, "norm_reduction_force_float32": False}


@pytest.mark.parametrize("options", [{}, WRITING, {"heads": 2, **WRITING}], ids=str)
@pytest.mark.parametrize(
    ("config", "tolerance"), [(CHUNKS, 1e-10), ({}, 1e-5)], ids=["by chunks", "in float32"]
)
@torch.no_grad()
def test_carried_weights_give_the_same_output_in_xlstm(options, config, tolerance):
    for batch, time, chunk in [(1, 1, 1), (2, 5, 5), (2, 67, 67), (1, 128, 64), (1, 129, 43)]:
        mixer, x = Case(batch, time, 16, options).draw(MLSTM)
        peer = published(mixer.heads, chunk_size=chunk, **config).double()
        peer.load_state_dict(carried(mixer.double()))
        y, _ = peer(x.double())
        assert relative_error(mixer(x.double()), y) <= tolerance


@pytest.mark.parametrize("bias", [-10.0, 0.0, 100.0])
@torch.no_grad()
def test_long_documents_with_extreme_gates_are_precise_in_float32(bias):
    torch.manual_seed(0)
    mixer, x = MLSTM(16, 4096, heads=2, input_bias=0.0), torch.randn(1, 4096, 16)
    mixer.i_bias += bias
    mixer.i_proj.weight *= 100  # gates at both ends of their cap
    y = mixer(x)
    assert relative_error(y, mixer.double()(x.double())) <= 1e-5


@torch.no_grad()
def test_it_is_linear_attention_of_gated_delta_net_without_its_gates():
    from mecheval.models.mixers.gated_delta_net import GatedDeltaNet

    off = {"decay": "none", "gate": False, "norm": False, "heads": 2, "expand_v": 1.0}
    mixer, x = Case(
        2, 67, 8, {"input_gate": "none", "normaliser": False, "expand_k": 1.0, **off}
    ).draw(MLSTM)
    peer = GatedDeltaNet(8, 129, delta=False, beta=False, d_conv=0, expand_k=1.0, **off).double()
    weights = {
        name.replace("out_proj", "o_proj"): w for name, w in mixer.double().state_dict().items()
    }
    peer.load_state_dict(weights)
    for conv in (peer.q_conv, peer.k_conv, peer.v_conv):
        conv.forward = lambda x: x  # there, a silu stays where the convolution was
    peer._map = lambda x: x  # and keys are normalised
    assert relative_error(mixer(x.double()), peer(x.double())) <= 1e-12


@torch.no_grad()
def test_weights_times_values_are_what_the_heads_read():
    for case in CASES[::11]:
        mixer, x = case.draw(MLSTM)
        mixer, x = mixer.double(), x.double()
        with record(mixer, ["head_out"]) as seen:
            mixer(x)
        weights, values = mixer.mixing(x)
        read = torch.einsum("bhts,bshd->bthd", weights, values)
        assert relative_error(read, seen["head_out"]) <= 1e-10, case


@pytest.mark.parametrize("dtype", PRECISION, ids=str)
@torch.no_grad()
def test_a_state_of_another_document_continues_as_it_would_there(dtype):
    torch.manual_seed(0)
    mixer = MLSTM(8, 32, heads=2, input_bias=2.0).to(dtype)
    mixer.i_proj.weight *= 20  # the two documents have other largest weights
    first, second = torch.randn(2, 1, 32, 8).to(dtype)
    second = torch.cat([second[:, :20], first[:, 20:]], dim=1)
    with record(mixer, ["state"]) as seen:
        there = mixer(first)
    with patch(mixer, {"state": put(seen["state"], torch.tensor([19]))}):
        here = mixer(second)
    assert relative_error(here[:, 20:], there[:, 20:]) <= PRECISION[dtype]


def test_options_that_do_not_fit_are_refused_by_name():
    with pytest.raises(InvalidInput, match=r"norm=true of heads=4 leaves nothing"):
        MLSTM(4, 8, heads=4)
    with pytest.raises(InvalidInput, match=r"input_bias=0 needs an input gate"):
        MLSTM(4, 8, input_gate="none", input_bias=0.0)
    with pytest.raises(InvalidInput, match=r"expand_k=0.5 times d_model=6 must be a multiple"):
        MLSTM(6, 8, heads=2)
