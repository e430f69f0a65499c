"""BaseConv agrees with numpy: filter taps from positions, outputs by direct sums."""

import math

import numpy as np
import pytest
from support.numpy_reference import (
    MAX_LEN,
    assert_agreement,
    assert_built_from,
    at_every_shape,
    convolve,
    numbers,
)

from mecheval.models.mixers.base_conv import BaseConv
from mecheval.models.ops.long_conv import TOEPLITZ_UP_TO, long_conv_ref
from mecheval.models.ops.short_conv import short_conv_ref

CASES = at_every_shape(
    (1, {"kernel": 1}),
    (6, {"kernel": 1}),
    (1, {"kernel": 3}),
    (6, {"kernel": 2}),
    (4, {"kernel": 4}),
    (5, {"kernel": 64}),
    (1, {"kernel": "long"}),
    (6, {"kernel": "long"}),
    (4, {"kernel": "long"}, {"filter.mlp.2.weight": 100}),
)


def reference(w, x, kernel):
    short = (
        None if kernel == "long" else w["conv.weight"][:, 0, ::-1].T
    )  # the last tap is on the present token
    taps = np.array([long_tap(w, i) for i in range(x.shape[1])]) if short is None else short
    y = np.empty_like(x)
    for b, z in enumerate(x):
        conv = convolve(z, taps) + (z if short is None else w["conv.bias"])
        y[b] = conv * (z @ w["projection.weight"].T + w["projection.bias"]) + z
    return y


def long_tap(w, i):
    angle = 1e-4 * 2 * math.pi * i / MAX_LEN
    # the features are kept as float32, as published
    position = np.float64(np.float32([i / (MAX_LEN - 1), math.cos(angle), -math.sin(angle)]))
    hidden = np.maximum(w["filter.mlp.0.weight"] @ position + w["filter.mlp.0.bias"], 0)
    return w["filter.mlp.2.weight"] @ hidden + w["filter.mlp.2.bias"]


def test_the_output_is_the_gated_sum():
    for case in CASES:
        mixer, x = case.draw(BaseConv)
        assert_agreement(
            case, mixer, x, reference(numbers(mixer), x.double().numpy(), **case.options)
        )


@pytest.mark.slow
def test_it_equals_the_mixer_built_from_plain_ops():
    twins = {"layers.short_conv": short_conv_ref, "mixers.base_conv.long_conv": long_conv_ref}
    assert_built_from(twins, BaseConv, CASES)


def test_some_cases_use_the_fft_and_some_kernels_are_wider_than_the_stream():
    assert any(case.options["kernel"] == "long" and case.time > TOEPLITZ_UP_TO for case in CASES)
    assert any(case.options["kernel"] == 64 and case.time < 64 for case in CASES)
