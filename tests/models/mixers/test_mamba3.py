"""Mamba-3 agrees with its steps in numpy, with a sum over pairs of tokens, and with Mamba-2."""

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
    silu,
    some_and_all,
)
from support.task_facts import relative_error

from mecheval.models.edits import put
from mecheval.models.mixers.mamba2 import Mamba2
from mecheval.models.mixers.mamba3 import Mamba3
from mecheval.models.ops.per_token import rms_norm_ref, silu_gate_ref
from mecheval.models.ops.recurrence import recurrence_ref
from mecheval.models.ops.short_conv import short_conv_ref
from mecheval.models.site import patch, record

SMALL = {"d_state": 4, "head_dim": 4}
CASES = at_every_shape(
    (4, SMALL),
    (4, {"d_state": 9, "head_dim": 2, "groups": 2, "rotary": 1.0, "d_conv": 2}),
    (8, {"d_state": 5, "head_dim": 4, "groups": 4, "norm": True}),
    (16, {}),
    (4, {**SMALL, "rotary": 0.0, "gate": False, "d_conv": 4}),
    (4, {"d_state": 4, "head_dim": 6, "expand": 3, "trapezoid": False, "bias": False}),
    (4, {"d_state": 6, "head_dim": 1, "decay": "heavy_tail", "skip": False}),
    (4, {**SMALL, "decay": "none", "bc_norm": False, "groups": 2}),
    (4, {**SMALL, "decay": "none", "trapezoid": False, "rotary": 0.0, "d_conv": 1}),
    (4, SMALL, {"dt_bias": 30, "A_proj.weight": 30}),  # all is forgotten at once
    (4, SMALL, {"A_proj.weight": -300, "trap_proj.weight": 300}),  # the slowest decay
)


def sigmoid(z):
    return np.exp(-np.logaddexp(0, -z))


def normalised(z, weight):
    return z / np.sqrt((z * z).mean(-1, keepdims=True) + 1e-5) * weight


def settings(options):
    defaults = {"d_state": 64, "expand": 2, "head_dim": 32, "groups": 1, "d_conv": 0}
    switches = {"decay": "softplus", "trapezoid": True, "rotary": 0.5, "bias": True}
    return {**defaults, **switches, "bc_norm": True, "norm": False, "gate": True, "skip": True} | (
        dict(options)
    )


def parts(w, x, use):
    """Return values, keys and queries before rotation, α, Δ, λ and what each token adds to φ."""
    heads = use["expand"] * x.shape[-1] // use["head_dim"]
    found = {}
    for which in "xBC":
        z = x @ w[f"{which}_proj.weight"].T
        if use["d_conv"]:
            taps = w[f"{which}_conv.weight"][:, 0, ::-1].T
            z = convolve(z, taps) + w[f"{which}_conv.bias"]
        found[which] = z.reshape(len(z), -1, use["head_dim" if which == "x" else "d_state"])
    for which in "BC":
        z = found[which]
        z = normalised(z, w[f"{which}_norm.weight"]) if use["bc_norm"] else z
        z = np.repeat(z, heads // use["groups"], axis=1)
        found[which] = z + w[f"{which}_bias"] if use["bias"] else z
    dt = np.logaddexp(0, x @ w["dt_proj.weight"].T + w["dt_bias"])
    log_alpha, share = np.zeros_like(dt), np.ones_like(dt)
    if use["decay"] != "none":
        A = x @ w["A_proj.weight"].T
        tail = np.where(A >= 0, 1 + A, 1 / (1 + np.abs(A)))
        A = np.logaddexp(0, A) if use["decay"] == "softplus" else tail
        log_alpha = -np.maximum(A, 1e-4) * dt
    if use["trapezoid"]:
        share = sigmoid(x @ w["trap_proj.weight"].T)
    turns = np.zeros((*dt.shape, 0))
    if use["rotary"]:
        turns = dt[:, :, None] * np.pi * np.tanh(x @ w["angle_proj.weight"].T)[:, None]
    return found["x"], found["B"], found["C"], log_alpha, dt, share, turns


def rotated(z, angle):
    """Rotate channels 2i and 2i + 1 by the i-th angle."""
    z = z.copy()
    for i, (c, s) in enumerate(zip(np.cos(angle), np.sin(angle), strict=True)):
        z[2 * i : 2 * i + 2] = np.array([[c, -s], [s, c]]) @ z[2 * i : 2 * i + 2]
    return z


def finish(w, x, o, v, use):
    """Return what the block adds to the stream, given what the heads read."""
    o = o + w["D"][:, None] * v if use["skip"] else o
    if use["norm"]:
        o = normalised(o, w["o_norm.weight"].reshape(o.shape))
    o = o.flatten() * (silu(w["z_proj.weight"] @ x) if use["gate"] else 1)
    return w["out_proj.weight"] @ o


def reference(w, x, **options):
    """Compute the outputs and the memory, one token after the other."""
    use = settings(options)
    y, states = np.empty_like(x), []
    for n in range(len(x)):
        v, B, C, log_alpha, dt, share, turns = parts(w, x[n], use)
        heads, d_state, head_dim = *B.shape[1:], v.shape[2]
        S = np.zeros((heads, d_state, head_dim))
        angle, k_before, v_before = 0 * turns[0], np.zeros_like(B[0]), np.zeros_like(v[0])
        for t in range(len(v)):
            angle = (angle + turns[t]) % (2 * math.pi)
            o = np.empty((heads, head_dim))
            for h in range(heads):
                k, q = rotated(B[t, h], angle[h]), rotated(C[t, h], angle[h])
                alpha = np.exp(log_alpha[t, h])
                beta, gamma = (1 - share[t, h]) * dt[t, h] * alpha, share[t, h] * dt[t, h]
                S[h] = alpha * S[h] + beta * np.outer(k_before[h], v_before[h])
                S[h] += gamma * np.outer(k, v[t, h])
                o[h], k_before[h], v_before[h] = q @ S[h], k, v[t, h]
            states.append(S.copy())
            y[n, t] = finish(w, x[n, t], o, v[t], use)
    return y, np.stack(states).reshape(*x.shape[:2], *S.shape)


def sum_over_pairs(w, x, **options):
    """Compute the outputs without a memory: every pair of tokens has one weight.

    o_t = Σ_{s≤t} Re⟨C_t, B_s e^{i(φ_s−φ_t)}⟩ α_{s+1} … α_t γ_s x_s,   where two channels are one
    complex number, and γ_s = λ_s Δ_s + (1 − λ_{s+1}) Δ_{s+1} while s < t, and λ_s Δ_s at s = t.
    """
    use, y = settings(options), np.empty_like(x)
    for n in range(len(x)):
        v, B, C, log_alpha, dt, share, turns = parts(w, x[n], use)
        pairs = turns.shape[2]

        def numbers_of(z, pairs=pairs):
            z, rest = z[..., : 2 * pairs], z[..., 2 * pairs :]
            return np.concatenate([z[..., 0::2] + 1j * z[..., 1::2], rest], axis=-1)

        B, C = numbers_of(B), numbers_of(C)
        turns = np.concatenate([turns, np.zeros((*B.shape[:2], B.shape[2] - pairs))], axis=2)
        for t in range(len(v)):
            o = np.zeros_like(v[0])
            for s in range(t + 1):
                between = np.exp(1j * turns[s + 1 : t + 1].sum(axis=0))
                match = (C[t] * np.conj(B[s]) * between).real.sum(axis=1)
                size = share[s] * dt[s]
                if s < t:
                    size = size + (1 - share[s + 1]) * dt[s + 1]
                kept = np.exp(log_alpha[s + 1 : t + 1].sum(axis=0))
                o += (match * kept * size)[:, None] * v[s]
            y[n, t] = finish(w, x[n, t], o, v[t], use)
    return y


@some_and_all(CASES)
def test_the_output_is_the_recurrence(cases):
    for case in cases:
        mixer, x = case.draw(Mamba3)
        y, states = reference(numbers(mixer), x.double().numpy(), **case.options)
        assert_agreement(case, mixer, x, y, state=states)


@some_and_all([case for case in CASES if case.time <= 65])
def test_the_output_is_a_sum_over_pairs_of_tokens(cases):
    for case in cases:
        mixer, x = case.draw(Mamba3)
        y = sum_over_pairs(numbers(mixer), x.double().numpy(), **case.options)
        assert_agreement(case, mixer, x, y)


@pytest.mark.slow
def test_it_equals_the_mixer_built_from_plain_ops():
    twins = {"layers.short_conv": short_conv_ref, "layers.rms_norm": rms_norm_ref}
    twins |= {"mixers.recurrent.recurrence": recurrence_ref}
    twins |= {"mixers.state_space.silu_gate": silu_gate_ref}
    assert_built_from(twins, Mamba3, CASES)


@torch.no_grad()
def test_weights_times_values_are_what_each_head_reads():
    for case in [case for case in CASES if case.time in (1, 3, 33)]:
        mixer, x = case.draw(Mamba3)
        with record(mixer.double(), ["head_out", "value"]) as seen:
            mixer(x.double())
        weights, values = mixer.mixing(x.double())
        assert torch.equal(values, seen["value"])
        o = torch.einsum("bhts,bshd->bthd", weights, values)
        assert relative_error(o, seen["head_out"]) <= 1e-12, case
        assert (weights.triu(1) == 0).all(), case


@torch.no_grad()
def test_it_is_mamba2_without_trapezoid_rotation_norm_and_bias():
    off = {"trapezoid": False, "rotary": 0.0, "bias": False, "bc_norm": False}
    options = {"d_state": 5, "head_dim": 4, "groups": 2, "d_conv": 3}
    mixer, x = Case(2, 67, 8, {**options, **off}).draw(Mamba3)
    mixer.A_proj.weight.zero_()  # there the rate of decay is no function of the input
    mamba2 = Mamba2(8, 129, **options, norm=False).double()
    weights = mixer.double().state_dict()
    weights["A_log"] = torch.full((4,), math.log(math.log(2)), dtype=torch.float64)  # softplus(0)
    del weights["A_proj.weight"]
    mamba2.load_state_dict(weights)
    for which in "xBC":  # and there a silu follows the convolution
        setattr(mamba2, f"{which}_conv", getattr(mixer, f"{which}_conv"))
    assert relative_error(mixer(x.double()), mamba2(x.double())) <= 1e-12


@torch.no_grad()
def test_a_share_of_1_is_the_memory_without_the_trapezoid():
    mixer, x = Case(2, 67, 8, SMALL).draw(Mamba3)
    plain = Mamba3(8, 129, **SMALL, trapezoid=False).double()
    plain.load_state_dict(
        {name: w for name, w in mixer.double().state_dict().items() if name != "trap_proj.weight"}
    )
    with patch(mixer, {"share": lambda share, site: torch.ones_like(share)}):
        assert relative_error(mixer(x.double()), plain(x.double())) <= 1e-12


@torch.no_grad()
def test_rotating_by_nothing_is_the_memory_without_rotation():
    mixer, x = Case(2, 67, 8, SMALL).draw(Mamba3)
    mixer.angle_proj.weight.zero_()
    plain = Mamba3(8, 129, **SMALL, rotary=0.0).double()
    plain.load_state_dict(
        {name: w for name, w in mixer.double().state_dict().items() if name != "angle_proj.weight"}
    )
    assert relative_error(mixer(x.double()), plain(x.double())) <= 1e-12


@pytest.mark.parametrize(("key_at", "value_at", "joined"), [(3, 3, True), (3, 4, False)])
@torch.no_grad()
def test_a_key_is_written_with_its_own_value_and_never_with_the_next(key_at, value_at, joined):
    """Of all keys and values only one each is left; without a pair the memory stays empty."""
    mixer, x = Case(1, 9, 8, SMALL).draw(Mamba3)

    def only(position):
        return lambda z, site: torch.where((torch.arange(9) == position)[:, None, None], z, 0)

    edits = {"key": only(key_at), "value": only(value_at)}
    with patch(mixer, edits), record(mixer, ["state"]) as seen:
        mixer(x)
    assert bool(seen["state"].any()) == joined


@torch.no_grad()
def test_the_last_token_is_written_again_after_an_edit_of_the_memory():
    """It is kept beside the memory, so an emptied memory is filled by the next token's step."""
    mixer, x = Case(1, 6, 8, {**SMALL, "rotary": 0.0}).draw(Mamba3)
    mixer, x = mixer.double(), x.double()
    names = ["key", "value", "query", "dt", "share", "log_decay", "head_out"]
    empty = put(torch.zeros(1, 6, 4, 4, 4).double(), torch.tensor([3]))
    with patch(mixer, {"state": empty}), record(mixer, names) as seen:
        mixer(x)
    k, v, q, dt, share, log_decay, o = (seen[name][0] for name in names)
    strengths = log_decay[4].exp() * (1 - share[4]) * dt[4], share[4] * dt[4]
    exact = mixer.D[:, None] * v[4]
    for t, strength in zip((3, 4), strengths, strict=True):
        exact += strength[:, None] * (q[4] * k[t]).sum(dim=-1, keepdim=True) * v[t]
    assert relative_error(o[4], exact) <= 1e-12
