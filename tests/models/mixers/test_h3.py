"""H3 worked out again by the recurrences of its two state space models, token by token."""

import numpy as np
import pytest
import torch
from by_hand import drawn, error, numbers

from mecheval.models.mixers.h3 import H3

SHAPES = [(1, 1), (3, 1), (1, 2), (2, 5), (1, 16), (2, 33)]
OPTIONS = [(1, 4, 1), (4, 8, 1), (4, 8, 2), (8, 2, 2), (8, 64, 4), (8, 8, 8), (4, 1024, 2)]
PRECISION = [(torch.float64, 1e-10), (torch.float32, 1e-5)]


def by_hand(w, x, head_dim):
    d_model, heads = x.shape[-1], x.shape[-1] // head_dim
    dt = np.exp(w["diagonal.log_dt"])[:, None]
    A = -np.exp(w["diagonal.log_A_real"]) + 1j * w["diagonal.A_imag"]
    B, C = (w[f"diagonal.{name}"] @ [1, 1j] for name in "BC")
    y = np.empty_like(x)
    for b in range(len(x)):
        window = np.zeros_like(w["shift.B"])
        state = np.zeros((head_dim, head_dim, *A.shape), complex)
        for t in range(x.shape[1]):
            q, k, v = (w[f"{name}_proj.weight"] @ x[b, t] + w[f"{name}_proj.bias"] for name in "qkv")
            window = np.concatenate([np.zeros((d_model, 1)), window[:, :-1]], axis=1) + w["shift.B"] * k[:, None]
            k = (w["shift.C"] * window).sum(axis=1) + w["D_k"] * k
            out = np.zeros((head_dim, heads))  # the published order of the output: value channel, then head
            for i, j in np.ndindex(head_dim, head_dim):
                # channel i of head h is h·head_dim + i
                kv = k[i::head_dim] * v[j::head_dim]
                # bilinear: (s' − s) / dt = A (s' + s) / 2 + B u
                state[i, j] = ((1 + dt * A / 2) * state[i, j] + dt * B * kv[:, None]) / (1 - dt * A / 2)
                read = 2 * (C * state[i, j]).sum(axis=1).real + w["D"] * kv
                out[j] += q[i::head_dim] * read
            y[b, t] = w["output_linear.weight"] @ out.ravel() + w["output_linear.bias"]
    return y


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION, ids=["float64", "float32"])
@pytest.mark.parametrize(("d_model", "d_state", "head_dim"), OPTIONS)
@pytest.mark.parametrize(("batch", "time"), SHAPES)
def test_the_output_is_the_recurrence_of_both_state_space_models(
    batch, time, d_model, d_state, head_dim, dtype, tolerance
):
    mixer = drawn(H3(d_model, 64, d_state=d_state, head_dim=head_dim), dtype)
    x = torch.randn(batch, time, d_model, dtype=dtype)
    assert error(mixer(x), by_hand(numbers(mixer), x.double().numpy(), head_dim)) <= tolerance


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION, ids=["float64", "float32"])
def test_the_output_is_the_recurrence_where_the_fft_takes_over(dtype, tolerance):
    mixer = drawn(H3(4, 320, d_state=64), dtype)
    x = torch.randn(1, 300, 4, dtype=dtype)
    assert error(mixer(x), by_hand(numbers(mixer), x.double().numpy(), 2)) <= tolerance
