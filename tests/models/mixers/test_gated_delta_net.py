"""Gated DeltaNet agrees with its recurrence in numpy, with Qwen3-Next's and with fla's."""

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
    silu,
    some_and_all,
)
from support.task_facts import relative_error

from mecheval.models.mixers.gated_delta_net import EPSILON, GatedDeltaNet
from mecheval.models.ops.per_token import rms_norm_ref, silu_gate_ref
from mecheval.models.ops.recurrence import recurrence_ref
from mecheval.models.ops.short_conv import short_conv_silu_ref

CASES = at_every_shape(
    (4, {}),
    (8, {"heads": 2, "d_conv": 2}),
    (8, {"heads": 3, "expand_v": 0.75}),
    (4, {"householders": 2}),
    (4, {"householders": 3, "heads": 2, "expand_k": 1.0, "expand_v": 1.0, "neg_eigval": True}),
    (4, {"decay": "none", "gate": False}),
    (4, {"decay": "constant", "norm": False, "d_conv": 0}),
    (8, {"decay": "channel", "heads": 2}),
    (4, {"decay": "channel", "delta": False}),
    (4, {"delta": False, "beta": False, "normaliser": True}),
    (4, {}, {"dt_bias": 30, "b_proj.weight": 100}),
)


def reference(w, x, heads=1, expand_k=0.75, expand_v=1.5, d_conv=4, householders=1, **switches):
    """Compute the outputs and the memory of the equations at the top of the mixer's file."""
    use = {"decay": "head", "delta": True, "beta": True, "gate": True, "norm": True, **switches}
    d_key, d_value = (int(expand * x.shape[-1]) // heads for expand in (expand_k, expand_v))
    normaliser = use.get("normaliser", False)
    y = np.empty_like(x)
    states = np.empty((*x.shape[:2], heads, d_key, d_value + normaliser))
    for n in range(len(x)):
        parts = {which: project(w, x[n], which, d_conv) for which in "qkv"}
        S = np.zeros((heads, d_key, d_value + normaliser))
        for t in range(x.shape[1]):
            q = parts["q"][t].reshape(heads, d_key)
            k = parts["k"][t].reshape(householders, heads, d_key)
            v = parts["v"][t].reshape(householders, heads, d_value)
            if normaliser:
                q, k = (np.where(z > 0, z + 1, np.exp(np.minimum(z, 0))) for z in (q, k))
                v = np.concatenate([v, np.ones_like(v[..., :1])], axis=-1)
            else:
                q, k = normalised(q, 1e-6), normalised(k, 1e-6)
            beta = np.ones((householders, heads))
            if use["beta"]:
                beta = sigmoid(x[n, t] @ w["b_proj.weight"].T).reshape(householders, heads)
                beta = 2 * beta if use.get("neg_eigval") else beta
            S = decay(w, x[n, t], use["decay"], heads)[..., None] * S
            for write in range(householders):
                for h in range(heads):
                    old = k[write, h] @ S[h] if use["delta"] else 0
                    S[h] += beta[write, h] * np.outer(k[write, h], v[write, h] - old)
            states[n, t] = S
            y[n, t] = output(w, x[n, t], np.einsum("hk,hkv->hv", q / math.sqrt(d_key), S), use)
    return y, states


def output(w, x, o, use):
    """Return what the block adds to the stream, given what the heads read."""
    if use.get("normaliser"):
        o = o[:, :-1] / (o[:, -1:] + EPSILON)
    if use["norm"]:
        width = o.shape[1]
        o = normalised(o, 1e-5 * width) * math.sqrt(width) * w["o_norm.weight"]
    gate = silu(w["g_proj.weight"] @ x) if use["gate"] else 1
    return w["o_proj.weight"] @ (o.flatten() * gate)


def decay(w, x, kind, heads):
    """Return w by head and row of the memory."""
    if kind == "none":
        return np.ones((heads, 1))
    if kind == "constant":
        return 1 - 2.0 ** -(5 + np.arange(heads))[:, None]
    z = np.logaddexp(0, w["a_proj.weight"] @ x + w["dt_bias"]).reshape(heads, -1)
    return np.exp(-np.exp(w["A_log"])[:, None] * z)


@some_and_all(CASES)
def test_the_output_is_the_recurrence(cases):
    for case in cases:
        mixer, x = case.draw(GatedDeltaNet)
        y, states = reference(numbers(mixer), x.double().numpy(), **case.options)
        assert_agreement(case, mixer, x, y, state=states)


@pytest.mark.slow
def test_it_equals_the_mixer_built_from_plain_ops():
    twins = {"layers.short_conv_silu": short_conv_silu_ref, "layers.rms_norm": rms_norm_ref}
    twins |= {"mixers.recurrent.recurrence": recurrence_ref}
    twins |= {"mixers.gated_delta_net.silu_gate": silu_gate_ref}
    assert_built_from(twins, GatedDeltaNet, CASES)


def carried(mixer, heads):
    """Return the weights by their names in transformers, which interleaves them by head."""
    w = mixer.state_dict()

    def by_head(*names):
        parts = [w[f"{name}_proj.weight"].unflatten(0, (heads, -1)) for name in names]
        return torch.cat(parts, dim=1).flatten(end_dim=1)

    names = {"A_log": "A_log", "dt_bias": "dt_bias", "norm.weight": "o_norm.weight"}
    names["out_proj.weight"] = "o_proj.weight"
    return {
        "in_proj_qkvz.weight": by_head("q", "k", "v", "g"),
        "in_proj_ba.weight": by_head("b", "a"),
        "conv1d.weight": torch.cat([w[f"{which}_conv.weight"] for which in "qkv"]),
        **{there: w[here] for there, here in names.items()},
    }


@pytest.mark.parametrize(("heads", "d_conv"), [(1, 4), (2, 4), (2, 2)])
@torch.no_grad()
def test_carried_weights_give_the_same_output_in_qwen3_next(heads, d_conv):
    module = pytest.importorskip(
        "transformers.models.qwen3_next.modeling_qwen3_next", reason="needs transformers"
    )
    from transformers import Qwen3NextConfig

    config = Qwen3NextConfig(
        hidden_size=8,
        linear_num_key_heads=heads,
        linear_num_value_heads=heads,
        linear_key_head_dim=8 // heads,
        linear_value_head_dim=16 // heads,
        linear_conv_kernel_dim=d_conv,
        rms_norm_eps=1e-5,
        hidden_act="silu",
    )
    peer = module.Qwen3NextGatedDeltaNet(config, 0).double()
    options = {"heads": heads, "d_conv": d_conv, "expand_k": 1.0, "expand_v": 2.0}
    for shape in [(1, 1), (2, 5), (2, 67), (1, 129)]:
        mixer, x = Case(*shape, 8, options).draw(GatedDeltaNet)
        peer.load_state_dict(carried(mixer.double(), heads))
        y = peer(x.double())
        assert relative_error(mixer(x.double()), y) <= 1e-5, "it casts to float32 inside"


@torch.no_grad()
def test_it_is_delta_net_without_decay_and_gate():
    from mecheval.models.mixers.delta_net import DeltaNet

    options = {"decay": "none", "gate": False, "expand_k": 1.0, "expand_v": 1.0, "heads": 2}
    mixer, x = Case(2, 67, 8, options).draw(GatedDeltaNet)
    delta_net = DeltaNet(8, 129, heads=2).double()
    weights = {name.replace("o_norm", "norm"): w for name, w in mixer.double().state_dict().items()}
    delta_net.load_state_dict(weights)
    assert relative_error(mixer(x.double()), delta_net(x.double())) <= 1e-12
