"""H3 agrees with the recurrences of its two state space models, written in numpy."""

import numpy as np
import pytest
from support.numpy_reference import assert_agreement, assert_built_from, at_every_shape, numbers

from mecheval.models.mixers.h3 import H3
from mecheval.models.ops.filters import diagonal_filter_ref, shift_filter_ref
from mecheval.models.ops.long_conv import TOEPLITZ_UP_TO, long_conv_ref

CASES = at_every_shape(
    (1, {"d_state": 4, "head_dim": 1}),
    (4, {"d_state": 8, "head_dim": 1}),
    (4, {"d_state": 8}),
    (8, {"d_state": 2}),
    (8, {"d_state": 64, "head_dim": 4}),
    (4, {"d_state": 8, "head_dim": 4}),
    (4, {"d_state": 1024}),
    (4, {"d_state": 16}, {"diagonal.log_dt": 3}),
    (4, {"d_state": 16}, {"diagonal.log_dt": -1}),
)


def reference(w, x, head_dim=2):
    d_model, heads = x.shape[-1], x.shape[-1] // head_dim
    dt = np.exp(w["diagonal.log_dt"])[:, None]
    A = -np.exp(w["diagonal.log_A_real"]) + 1j * w["diagonal.A_imag"]
    B, C = (w[f"diagonal.{name}"] @ [1, 1j] for name in "BC")
    y = np.empty_like(x)
    for b in range(len(x)):
        window = np.zeros_like(w["shift.B"])
        state = np.zeros((head_dim, head_dim, *A.shape), complex)
        for t in range(x.shape[1]):
            q, k, v = (
                w[f"{name}_proj.weight"] @ x[b, t] + w[f"{name}_proj.bias"] for name in "qkv"
            )
            window = (
                np.concatenate([np.zeros((d_model, 1)), window[:, :-1]], axis=1)
                + w["shift.B"] * k[:, None]
            )
            k = (w["shift.C"] * window).sum(axis=1) + w["D_k"] * k
            out = np.zeros(
                (head_dim, heads)
            )  # the published order of the output: value channel, then head
            for i, j in np.ndindex(head_dim, head_dim):
                # channel i of head h is h·head_dim + i
                kv = k[i::head_dim] * v[j::head_dim]
                # bilinear: (s' − s) / dt = A (s' + s) / 2 + B u
                state[i, j] = ((1 + dt * A / 2) * state[i, j] + dt * B * kv[:, None]) / (
                    1 - dt * A / 2
                )
                read = 2 * (C * state[i, j]).sum(axis=1).real + w["D"] * kv
                out[j] += q[i::head_dim] * read
            y[b, t] = w["output_linear.weight"] @ out.ravel() + w["output_linear.bias"]
    return y


@pytest.mark.slow
def test_the_output_is_the_recurrence_of_both_state_space_models():
    for case in CASES:
        mixer, x = case.draw(H3)
        truth = reference(numbers(mixer), x.double().numpy(), case.options.get("head_dim", 2))
        assert_agreement(case, mixer, x, truth)


@pytest.mark.slow
def test_it_equals_the_mixer_built_from_plain_ops():
    twins = {
        "long_conv": long_conv_ref,
        "shift_filter": shift_filter_ref,
        "diagonal_filter": diagonal_filter_ref,
    }
    assert_built_from({f"mixers.h3.{name}": twin for name, twin in twins.items()}, H3, CASES)


def test_some_cases_use_the_fft_and_step_sizes_are_tiny_and_huge():
    assert any(case.time > TOEPLITZ_UP_TO for case in CASES)
    steps = np.concatenate([np.exp(numbers(case.draw(H3)[0])["diagonal.log_dt"]) for case in CASES])
    assert steps.min() < 1e-7
    assert steps.max() > 10
