"""BaseConv worked out again: every tap of the filter from its position, every output by its sum."""

import math

import numpy as np
import pytest
import torch
from by_hand import drawn, error, numbers

from mecheval.models.mixers.base_conv import BaseConv
from mecheval.models.ops.long_conv import TOEPLITZ_UP_TO

MAX_LEN = 320
SHAPES = [(1, 1), (3, 1), (1, 2), (2, 5), (1, 16), (2, 33)]
KERNELS = [1, 2, 3, 4, 7, "long"]
PRECISION = [(torch.float64, 1e-10), (torch.float32, 1e-5)]


def by_hand(w, x, kernel):
    filtered = long_filter(w, x.shape[1]) if kernel == "long" else w["conv.weight"][:, 0, ::-1].T
    y = np.empty_like(x)
    for b, t in np.ndindex(x.shape[:2]):
        conv = sum(filtered[i] * x[b, t - i] for i in range(min(t + 1, len(filtered))))
        conv = conv + (x[b, t] if kernel == "long" else w["conv.bias"])
        y[b, t] = conv * (w["projection.weight"] @ x[b, t] + w["projection.bias"]) + x[b, t]
    return y


def long_filter(w, time):
    taps = []
    for i in range(time):
        angle = 1e-4 * 2 * math.pi * i / MAX_LEN
        # the features are kept as float32, as published
        position = np.float64(np.float32([i / (MAX_LEN - 1), math.cos(angle), -math.sin(angle)]))
        hidden = np.maximum(w["filter.mlp.0.weight"] @ position + w["filter.mlp.0.bias"], 0)
        taps.append(w["filter.mlp.2.weight"] @ hidden + w["filter.mlp.2.bias"])
    return taps


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION, ids=["float64", "float32"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("batch", "time"), SHAPES)
def test_the_output_is_the_gated_sum(batch, time, kernel, dtype, tolerance):
    for d_model in (1, 6):
        mixer = drawn(BaseConv(d_model, MAX_LEN, kernel=kernel), dtype)
        x = torch.randn(batch, time, d_model, dtype=dtype)
        assert error(mixer(x), by_hand(numbers(mixer), x.double().numpy(), kernel)) <= tolerance


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION, ids=["float64", "float32"])
@pytest.mark.parametrize("time", [TOEPLITZ_UP_TO, TOEPLITZ_UP_TO + 1, MAX_LEN])
def test_the_output_is_the_gated_sum_where_the_fft_takes_over(time, dtype, tolerance):
    mixer = drawn(BaseConv(4, MAX_LEN, kernel="long"), dtype)
    x = torch.randn(1, time, 4, dtype=dtype)
    assert error(mixer(x), by_hand(numbers(mixer), x.double().numpy(), "long")) <= tolerance
