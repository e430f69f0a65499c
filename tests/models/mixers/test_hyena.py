"""Hyena agrees with numpy: filter taps from positions, outputs by direct sums."""

import math

import numpy as np
import pytest
import torch
from support.numpy_reference import (
    MAX_LEN,
    assert_agreement,
    assert_built_from,
    at_every_shape,
    convolve,
    numbers,
)

from mecheval.models.mixers.hyena import Hyena
from mecheval.models.ops.long_conv import TOEPLITZ_UP_TO, long_conv_ref
from mecheval.models.ops.short_conv import short_conv_ref

CASES = at_every_shape(
    (1, {"filter_order": 4}),
    (4, {"filter_order": 8, "skip": True}),
    (4, {"filter_order": 1, "short": 1}),
    (6, {"filter_order": 8, "short": 2, "skip": True}),
    (6, {"short": 4}),
    (5, {"filter_order": 16, "short": 64}),
    (4, {"filter_order": 8}, {"filter.decay": 0}),
    (4, {"filter_order": 8, "skip": True}, {"filter.decay": 1000}),
    (3, {"filter_order": 8}, {"filter.frequency": 3}),
)


def reference(w, x, decay):
    short = w["short_conv.weight"][:, 0, ::-1].T  # the last tap is on the present token
    long = np.array([long_tap(w, i, decay) for i in range(x.shape[1])])
    y = np.empty_like(x)
    for b in range(len(x)):
        z = x[b] @ w["in_proj.weight"].T + w["in_proj.bias"]
        x1, x2, v = np.split(convolve(z, short) + w["short_conv.bias"], 3, axis=1)
        out = convolve(x1 * v, long) + w.get("D", 0) * x1 * v
        y[b] = (x2 * out) @ w["out_proj.weight"].T + w["out_proj.bias"]
    return y


def long_tap(w, i, decay):
    h = w["filter.features"][i]
    for layer in range(3):
        h = np.sin(
            w["filter.frequency"]
            * (w[f"filter.layers.{layer}.weight"] @ h + w[f"filter.layers.{layer}.bias"])
        )
    t = np.float64(np.float32(i / (MAX_LEN - 1)))  # kept as float32, as published
    return (w["filter.out.weight"] @ h) * np.exp(-t * decay)


def rates(mixer, factor):
    """Return the decay in float32, after checking its values."""
    channels = len(mixer.filter.decay)
    slow, fast = -math.log(0.01) / 1.5, -math.log(0.01) / 0.3
    expected = [factor * (slow + (fast - slow) * c / max(channels - 1, 1)) for c in range(channels)]
    decay = mixer.filter.decay.double().numpy()
    assert decay == pytest.approx(expected, rel=1e-6)
    return decay


def test_the_output_is_the_gated_sum():
    for case in CASES:
        mixer, x = case.draw(Hyena)
        w, decay = numbers(mixer), rates(mixer, case.scaled.get("filter.decay", 1))
        assert ("D" in w) == case.options.get("skip", False)
        assert_agreement(case, mixer, x, reference(w, x.double().numpy(), decay))


@pytest.mark.slow
def test_it_equals_the_mixer_built_from_plain_ops():
    twins = {"layers.short_conv": short_conv_ref, "mixers.hyena.long_conv": long_conv_ref}
    assert_built_from(twins, Hyena, CASES)


def test_some_cases_use_the_fft_and_filters_decay_never_and_at_once():
    assert any(case.time > TOEPLITZ_UP_TO for case in CASES)
    rates = torch.cat([case.draw(Hyena)[0].filter.decay for case in CASES])
    second = torch.exp(-rates / (MAX_LEN - 1))  # what the decay multiplies the second tap by
    assert float(second.min()) < 1e-9
    assert float(second.max()) == 1
