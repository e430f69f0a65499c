"""Hyena worked out again: every tap of both filters, every output by its sum."""

import math

import numpy as np
import pytest
import torch
from by_hand import drawn, error, numbers

from mecheval.models.mixers.hyena import Hyena
from mecheval.models.ops.long_conv import TOEPLITZ_UP_TO

MAX_LEN = 320
SHAPES = [(1, 1), (3, 1), (1, 2), (2, 5), (1, 16), (2, 33)]
OPTIONS = [(1, 4, 3, False), (4, 8, 3, True), (4, 1, 1, False), (6, 8, 2, True), (6, 64, 4, False), (5, 64, 3, False)]
PRECISION = [(torch.float64, 1e-10), (torch.float32, 1e-5)]


def by_hand(w, x, decay):
    time, d_model = x.shape[1:]
    long = [long_tap(w, i, decay) for i in range(time)]
    short = w["short_conv.weight"][:, 0, ::-1].T
    y = np.empty_like(x)
    for b in range(len(x)):
        z = x[b] @ w["in_proj.weight"].T + w["in_proj.bias"]
        gated = np.empty((time, d_model))
        for t in range(time):
            conv = w["short_conv.bias"] + sum(short[i] * z[t - i] for i in range(min(len(short), t + 1)))
            x1, x2, v = conv[:d_model], conv[d_model : 2 * d_model], conv[2 * d_model :]
            gated[t] = x1 * v
            out = sum(long[i] * gated[t - i] for i in range(t + 1))
            out = out + w["D"] * gated[t] if "D" in w else out
            y[b, t] = w["out_proj.weight"] @ (x2 * out) + w["out_proj.bias"]
    return y


def long_tap(w, i, decay):
    h = w["filter.features"][i]
    for layer in range(3):
        h = np.sin(w["filter.frequency"] * (w[f"filter.layers.{layer}.weight"] @ h + w[f"filter.layers.{layer}.bias"]))
    t = np.float64(np.float32(i / (MAX_LEN - 1)))  # kept as float32, as published
    return (w["filter.out.weight"] @ h) * np.exp(-t * decay)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION, ids=["float64", "float32"])
@pytest.mark.parametrize(("d_model", "filter_order", "short", "skip"), OPTIONS)
@pytest.mark.parametrize(("batch", "time"), SHAPES)
def test_the_output_is_the_gated_sum(batch, time, d_model, filter_order, short, skip, dtype, tolerance):
    mixer = drawn(Hyena(d_model, MAX_LEN, filter_order=filter_order, short=short, skip=skip), dtype)
    assert ("D" in numbers(mixer)) == skip
    x = torch.randn(batch, time, d_model, dtype=dtype)
    assert error(mixer(x), by_hand(numbers(mixer), x.double().numpy(), rates(mixer))) <= tolerance


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION, ids=["float64", "float32"])
@pytest.mark.parametrize("time", [TOEPLITZ_UP_TO, TOEPLITZ_UP_TO + 1, MAX_LEN])
def test_the_output_is_the_gated_sum_where_the_fft_takes_over(time, dtype, tolerance):
    mixer = drawn(Hyena(4, MAX_LEN, skip=True), dtype)
    x = torch.randn(1, time, 4, dtype=dtype)
    assert error(mixer(x), by_hand(numbers(mixer), x.double().numpy(), rates(mixer))) <= tolerance


def rates(mixer):
    """The decay as float32 keeps it, after a look at whether it is the right one."""
    channels = len(mixer.filter.decay)
    slow, fast = -math.log(0.01) / 1.5, -math.log(0.01) / 0.3
    expected = [slow + (fast - slow) * c / max(channels - 1, 1) for c in range(channels)]
    decay = mixer.filter.decay.double().numpy()
    assert decay == pytest.approx(expected, rel=1e-6)
    return decay
