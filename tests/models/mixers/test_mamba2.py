"""Mamba-2 agrees with its recurrence in numpy, with transformers' and with its sum over pairs."""

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
    silu,
    some_and_all,
)
from support.task_facts import relative_error

from mecheval.core.errors import InvalidInput
from mecheval.models.config import ModelConfig
from mecheval.models.mixers.mamba2 import Mamba2
from mecheval.models.ops.per_token import rms_norm_ref, silu_gate_ref
from mecheval.models.ops.recurrence import recurrence_ref
from mecheval.models.ops.selective_scan import selective_scan_ref
from mecheval.models.ops.short_conv import short_conv_silu_ref
from mecheval.models.site import record

CASES = at_every_shape(
    (4, {"d_state": 4, "head_dim": 4}),
    (4, {"d_state": 3, "head_dim": 2, "groups": 2, "d_conv": 2}),
    (8, {"d_state": 5, "head_dim": 4, "groups": 4, "d_conv": 1}),
    (16, {}),
    (4, {"d_state": 4, "head_dim": 8, "d_conv": 0, "gate": False}),
    (4, {"d_state": 4, "head_dim": 6, "expand": 3, "norm": False, "d_conv": 3}),
    (4, {"d_state": 1, "head_dim": 1, "skip": False}),
    (4, {"d_state": 4, "head_dim": 4, "decay": False, "groups": 2, "gate": False, "skip": False}),
    (4, {"d_state": 4, "head_dim": 4}, {"dt_bias": 30, "A_log": 3}),  # all is forgotten at once
    (4, {"d_state": 4, "head_dim": 4}, {"dt_proj.weight": 100}),
)


def reference(w, x, d_state=64, expand=2, head_dim=32, groups=1, d_conv=4, **switches):
    """Compute the outputs and the memory of the equations at the top of the mixer's file."""
    use = {"decay": True, "gate": True, "skip": True, "norm": True, **switches}
    d_inner = expand * x.shape[-1]
    heads = d_inner // head_dim
    y = np.empty_like(x)
    states = np.empty((*x.shape[:2], heads, d_state, head_dim))
    for n in range(len(x)):
        values, B, C = (project(w, x[n], which, d_conv) for which in "xBC")
        S = np.zeros((heads, d_state, head_dim))
        for t in range(x.shape[1]):
            dt = np.logaddexp(0, w["dt_proj.weight"] @ x[n, t] + w["dt_bias"])
            v = values[t].reshape(heads, head_dim)
            o = np.empty((heads, head_dim))
            for h in range(heads):
                group = h // (heads // groups)
                k, q = (z[t].reshape(groups, d_state)[group] for z in (B, C))
                kept = np.exp(-np.exp(w["A_log"][h]) * dt[h]) if use["decay"] else 1
                S[h] = kept * S[h] + dt[h] * np.outer(k, v[h])
                o[h] = q @ S[h] + (w["D"][h] * v[h] if use["skip"] else 0)
            states[n, t] = S
            o = o.flatten() * (silu(w["z_proj.weight"] @ x[n, t]) if use["gate"] else 1)
            if use["norm"]:
                rows = o.reshape(groups, -1)
                scale = np.sqrt((rows * rows).mean(axis=1, keepdims=True) + 1e-5)
                o = (rows / scale).flatten() * w["o_norm.weight"]
            y[n, t] = w["out_proj.weight"] @ o
    return y, states


def project(w, x, which, d_conv):
    """Return silu(conv(W x)) of one document; the last tap is on the present token."""
    z = x @ w[f"{which}_proj.weight"].T
    if d_conv:
        z = convolve(z, w[f"{which}_conv.weight"][:, 0, ::-1].T) + w[f"{which}_conv.bias"]
    return silu(z)


@some_and_all(CASES)
def test_the_output_is_the_recurrence(cases):
    for case in cases:
        mixer, x = case.draw(Mamba2)
        y, states = reference(numbers(mixer), x.double().numpy(), **case.options)
        assert_agreement(case, mixer, x, y, state=states)


@pytest.mark.slow
def test_it_equals_the_mixer_built_from_plain_ops():
    twins = {"layers.short_conv_silu": short_conv_silu_ref, "layers.rms_norm": rms_norm_ref}
    twins |= {"mixers.recurrent.recurrence": recurrence_ref}
    twins |= {"mixers.state_space.silu_gate": silu_gate_ref}
    assert_built_from(twins, Mamba2, CASES)


def carried(mixer):
    """Return the weights by their names in transformers and mamba-ssm."""
    w = mixer.state_dict()
    names = {name: name for name in ("dt_bias", "A_log", "D", "out_proj.weight")}
    names["norm.weight"] = "o_norm.weight"
    return {
        "in_proj.weight": torch.cat([w[f"{name}_proj.weight"] for name in ("z", *"xBC", "dt")]),
        "conv1d.weight": torch.cat([w[f"{name}_conv.weight"] for name in "xBC"]),
        "conv1d.bias": torch.cat([w[f"{name}_conv.bias"] for name in "xBC"]),
        **{there: w[here] for there, here in names.items()},
    }


@pytest.mark.parametrize(("groups", "d_conv"), [(1, 4), (1, 2), (2, 4)])
@torch.no_grad()
def test_carried_weights_give_the_same_output_in_transformers(groups, d_conv):
    module = pytest.importorskip(
        "transformers.models.mamba2.modeling_mamba2", reason="needs transformers"
    )
    from transformers import Mamba2Config
    from transformers.models.zamba2.modeling_zamba2 import Zamba2RMSNormGated

    config = Mamba2Config(
        hidden_size=8,
        num_heads=4,
        head_dim=4,
        state_size=6,
        expand=2,
        n_groups=groups,
        conv_kernel=d_conv,
        chunk_size=16,
        layer_norm_epsilon=1e-5,
        num_hidden_layers=1,
    )
    peer = module.Mamba2Mixer(config, 0)
    # Mamba2Mixer normalises all groups together, mamba-ssm and Zamba2 each by itself
    peer.norm = Zamba2RMSNormGated(16, 16 // groups, eps=1e-5)
    peer = peer.double().eval()
    options = {"d_state": 6, "head_dim": 4, "groups": groups, "d_conv": d_conv}
    for shape in [(1, 1), (2, 5), (2, 67), (1, 129)]:
        mixer, x = Case(*shape, 8, options).draw(Mamba2)
        peer.load_state_dict(carried(mixer.double()))
        y = peer(x.double())
        assert relative_error(mixer(x.double()), y) <= 1e-5, "it casts to float32 inside"


@torch.no_grad()
def test_what_is_read_is_a_sum_over_pairs_of_tokens():
    """o_t = Σ_{s≤t} (C_t · B_s) exp(Σ_{s<r≤t} log α_r) dt_s x_s + D x_t, the paper's dual form"""
    for case in [case for case in CASES if case.time in (1, 5, 33) and not case.scaled]:
        mixer, x = case.draw(Mamba2)
        names = ["x_conv_out", "B_conv_out", "C_conv_out", "dt", "head_out"]
        names += ["log_decay"] if mixer.decay else []
        with record(mixer.double(), names) as seen:
            mixer(x.double())
        B, C = (
            seen[f"{name}_conv_out"].repeat_interleave(mixer.heads // mixer.groups, 2)
            for name in "BC"
        )
        v = seen["x_conv_out"].unflatten(-1, (mixer.heads, -1))
        total = seen["log_decay"].cumsum(dim=1) if mixer.decay else torch.zeros_like(seen["dt"])
        kept = (total[:, :, None] - total[:, None]).permute(0, 3, 1, 2).tril().exp().tril()
        weights = torch.einsum("bthn,bshn->bhts", C, B) * kept * seen["dt"].mT[:, :, None]
        o = torch.einsum("bhts,bshp->bthp", weights, v)
        o = o + mixer.D[:, None] * v if mixer.skip else o
        assert relative_error(seen["head_out"], o) <= 1e-12, case
        weights, values = mixer.mixing(x.double())
        o = torch.einsum("bhts,bshp->bthp", weights, values)
        assert relative_error(seen["head_out"], o) <= 1e-12, case
        assert (weights.triu(1) == 0).all()


@pytest.mark.parametrize(
    ("d_model", "channels"), [(4, 8), (6, 12), (20, 20), (16, 32), (64, 32), (37, 2)]
)
def test_heads_have_32_channels_or_the_most_below_that_divide_the_width(d_model, channels):
    ModelConfig("mamba2", d_model=d_model)
    assert Mamba2(d_model, 16).head_dim == channels


def test_a_width_of_heads_that_is_given_is_not_changed():
    with pytest.raises(InvalidInput, match="head_dim=24 must divide expand·d_model=32; use 16"):
        ModelConfig("mamba2:head_dim=24", d_model=16)
    with pytest.raises(InvalidInput, match=r"groups=2 must divide the heads, .*=1; use groups=1"):
        Mamba2(4, 16, groups=2)


@torch.no_grad()
def test_heads_of_one_channel_are_mambas_scan_with_the_same_decay_of_every_state():
    mixer, x = Case(2, 33, 4, {"head_dim": 1, "d_state": 5}).draw(Mamba2)
    names = ["x_conv_out", "B_conv_out", "C_conv_out", "dt", "head_out"]
    with record(mixer.double(), names) as seen:
        mixer(x.double())
    A = -mixer.A_log.exp()[:, None].expand(-1, 5)
    B, C = (seen[f"{name}_conv_out"][:, :, 0] for name in "BC")
    y = selective_scan_ref(seen["x_conv_out"], seen["dt"], A, B, C, mixer.D)
    assert relative_error(seen["head_out"][..., 0], y) <= 1e-12
