"""DeltaNet agrees with its recurrence, written in numpy."""

import math

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
    silu,
)
from support.task_facts import relative_error

from mecheval.models.layers import l2_normalise
from mecheval.models.mixers.delta_net import DeltaNet
from mecheval.models.ops.delta_rule import CHUNK, delta_rule_ref
from mecheval.models.ops.per_token import rms_norm_ref
from mecheval.models.ops.short_conv import short_conv_silu_ref
from mecheval.models.site import record

CASES = at_every_shape(
    (4, {}),
    (4, {"d_conv": 0}),
    (6, {"heads": 3, "d_conv": 1}),
    (8, {"heads": 2, "d_conv": 2}),
    (8, {"heads": 2, "d_conv": 0}),
    (12, {"heads": 3, "d_conv": 3}),
    (4, {"d_conv": 2}, {"b_proj.weight": 100}),
    (8, {"heads": 2}, {"b_proj.weight": 100}),
    (6, {"d_conv": 16}),
)
# chunks are of equal length: there are two from 96 tokens on, three from 161
CASES += [Case(1, time, 8, {"heads": 2}) for time in (95, 96, 97, 160, 161)]


def project(w, x, which, d_conv):
    """Return silu(conv(W x)) of one document; the last tap is on the present token."""
    z = x @ w[f"{which}_proj.weight"].T
    return silu(convolve(z, w[f"{which}_conv.weight"][:, 0, ::-1].T) if d_conv else z)


def reference(w, x, heads=1, d_conv=4):
    d_head = x.shape[-1] // heads
    y, states = np.empty_like(x), np.empty((*x.shape[:2], heads, d_head, d_head))
    for b in range(len(x)):
        q, k, v = (project(w, x[b], which, d_conv) for which in "qkv")
        S = np.zeros((heads, d_head, d_head))
        for t in range(x.shape[1]):
            read = np.empty(x.shape[-1])
            for h in range(heads):
                part = slice(h * d_head, (h + 1) * d_head)
                key = k[t, part] / math.sqrt(k[t, part] @ k[t, part] + 1e-6)
                query = q[t, part] / math.sqrt(q[t, part] @ q[t, part] + 1e-6) / math.sqrt(d_head)
                beta = 1 / (1 + math.exp(-(w["b_proj.weight"][h] @ x[b, t])))
                S[h] += beta * np.outer(key, v[t, part] - key @ S[h])
                o = query @ S[h]
                read[part] = o / math.sqrt(o @ o / d_head + 1e-5) * w["norm.weight"]
            states[b, t], y[b, t] = S, w["o_proj.weight"] @ read
    return y, states


def test_the_output_is_the_recurrence():
    for case in CASES:
        mixer, x = case.draw(DeltaNet)
        y, states = reference(numbers(mixer), x.double().numpy(), **case.options)
        assert_agreement(case, mixer, x, y, state=states)


@pytest.mark.slow
def test_it_equals_the_mixer_built_from_plain_ops():
    twins = {"layers.short_conv_silu": short_conv_silu_ref, "layers.rms_norm": rms_norm_ref}
    twins |= {"mixers.delta_net.delta_rule": delta_rule_ref}
    assert_built_from(twins, DeltaNet, CASES)


def test_some_cases_replace_the_whole_old_value_and_some_nothing():
    assert {CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK - 1, 2 * CHUNK, 2 * CHUNK + 1} < {
        case.time for case in CASES
    }
    beta = torch.cat([rates.flatten() for rates in recorded("beta", DeltaNet, CASES)])
    assert float(beta.min()) < 1e-30
    assert float(beta.max()) == 1


def test_the_output_is_the_recurrence_in_heads_of_one_channel():
    # float32 to 1e-4: the norm divides by √(o² + 1e-5), so rounding of a small o grows 300-fold
    for case in at_every_shape((1, {}), (8, {"heads": 8, "d_conv": 3})):
        mixer, x = case.draw(DeltaNet)
        y, states = reference(numbers(mixer), x.double().numpy(), **case.options)
        assert_agreement(
            case, mixer, x, y, {torch.float64: 1e-10, torch.float32: 1e-4}, state=states
        )


@pytest.mark.parametrize("heads", [1, 2])
def test_the_memory_agrees_with_flas_naive_rule(heads, monkeypatch):
    naive = pytest.importorskip(
        "fla.ops.delta_rule.naive",
        reason="needs flash-linear-attention and triton",
        exc_type=ImportError,
    )
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)  # it would compute in float32
    mixer, x = Case(2, 67, 8, {"heads": heads}).draw(DeltaNet)
    with record(
        mixer.double(), ["q_conv_out", "k_conv_out", "v_conv_out", "beta", "head_out"]
    ) as seen:
        mixer(x.double())
    q, k, v = (
        seen[f"{which}_conv_out"].unflatten(-1, (heads, -1)).transpose(1, 2) for which in "qkv"
    )
    o, _ = naive.delta_rule_recurrence(
        l2_normalise(q), l2_normalise(k), v, seen["beta"].transpose(1, 2)
    )
    assert relative_error(seen["head_out"], o.transpose(1, 2)) <= 1e-10
