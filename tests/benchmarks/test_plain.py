"""The plain form computes the same as mecheval, and the counted work is that of the equations."""

from contextlib import suppress
from dataclasses import replace

import pytest
import torch

from benchmarks.flops import READ_FLOPS, SCAN_FLOPS, count_flops
from benchmarks.plain import conv1d, fft_conv, published_scan, replace_ops, twins
from benchmarks.rivals import Missing, mambapy_scan
from benchmarks.size import ARCHITECTURES, Size
from benchmarks.steps import UPDATES, Setup
from mecheval.models.mixers import mamba
from mecheval.models.ops.delta_rule import delta_rule
from mecheval.models.ops.long_conv import long_conv
from mecheval.models.ops.selective_scan import selective_scan
from mecheval.models.ops.short_conv import short_conv

pytestmark = pytest.mark.slow

SMALL = Size(rounds=1, batch=8, pairs=12, vocab=256, max_len=64)


def random_tensor(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def last_loss(step):
    return [step() for _ in range(UPDATES + 1)][-1]


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_losses_are_those_of_the_plain_form_to_five_decimals_after_four_updates(architecture):
    setup = Setup(architecture, 64, SMALL)
    ours = last_loss(setup.ours())
    assert last_loss(setup.plain(twins())) == pytest.approx(ours, abs=5e-6)
    assert abs(setup.ours()() - ours) > 1e-3, "the loss changed"


@pytest.mark.parametrize(
    ("architecture", "at_least"), [("mamba", 3), ("hyena", 3), ("delta_net", 2)]
)
def test_ops_of_other_packages_in_the_same_model_have_the_same_losses(architecture, at_least):
    losses = []
    for name, build in Setup(architecture, 16, SMALL).contestants().items():
        if name not in ("mambapy's mixer", "transformers"):
            with suppress(Missing):
                losses.append(last_loss(build()))
    assert len(losses) >= at_least
    assert losses == pytest.approx([losses[0]] * len(losses), abs=5e-6)


def test_every_op_with_a_twin_is_replaced_wherever_it_is_called_and_restored_afterwards():
    before = mamba.selective_scan
    assert before is selective_scan
    plain = twins()
    assert {selective_scan, short_conv, long_conv, delta_rule} <= plain.keys()
    with suppress(ZeroDivisionError), replace_ops(plain):
        assert mamba.selective_scan is plain[selective_scan]
        raise ZeroDivisionError
    assert mamba.selective_scan is before


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_calls_an_op_that_the_plain_form_replaces(architecture):
    setup, calls = Setup(architecture, 8, SMALL), []

    def fail(*tensors, backend="auto"):
        calls.append(tensors)
        raise AssertionError

    model, tokens = setup.model(), torch.zeros(1, 8, dtype=torch.long)
    with replace_ops(dict.fromkeys(twins(), fail)), pytest.raises(AssertionError):
        model(tokens)
    assert calls


def test_the_published_scan_and_the_usual_convolutions_compute_the_same_as_ours():
    x, k = random_tensor(2, 9, 6), random_tensor(9, 6)
    assert torch.allclose(fft_conv(x, k), long_conv(x, k), atol=1e-5)
    weight, bias = random_tensor(6, 3), random_tensor(6)
    assert torch.allclose(conv1d(x, weight, bias), short_conv(x, weight, bias), atol=1e-6)
    inputs = (
        x,
        random_tensor(2, 9, 6).exp(),
        -random_tensor(6, 4).exp(),
        random_tensor(2, 9, 4),
        random_tensor(2, 9, 4),
        random_tensor(6),
    )
    y = selective_scan(*inputs)
    assert torch.allclose(published_scan(*inputs), y, atol=1e-5)
    try:
        theirs = mambapy_scan()
    except Missing as error:
        pytest.skip(str(error))
    assert torch.allclose(theirs(*inputs), y, atol=1e-5)


def test_the_work_of_attention_is_that_of_its_equation():
    """Products run once forward and twice backward; the last layer has one query per document."""
    size = replace(SMALL, pairs=28)
    batch, time, d, vocab = size.batch, 2 * size.pairs + 3, 16, size.vocab + 3
    tokens = batch * time
    # two products with the causal half of the keys
    first = tokens * d * (3 * d + d + 8 * d) + 2 * tokens * time * d / 2
    last = batch * d * (4 * d + 8 * d) + 2 * batch * time * d
    work = 6 * (first + last + batch * d * vocab)
    assert count_flops(Setup("attention", d, size).ours()) == pytest.approx(work, rel=0.01)


def test_the_work_of_a_scan_is_counted_for_each_token_channel_and_state():
    """One state in place of sixteen saves work in the scan and in B and C."""
    batch, d_inner, fewer = SMALL.batch, 32, 15
    tokens = batch * (2 * SMALL.pairs + 3)
    many, one = (
        count_flops(Setup(name, 16, SMALL).ours()) for name in ("mamba", "mamba:d_state=1")
    )
    # the last layer computes C at one token of each document
    B_and_C = 3 * 2 * d_inner * fewer * (tokens * 2 + tokens + batch)
    assert many - one == (SCAN_FLOPS + READ_FLOPS) * tokens * d_inner * fewer + B_and_C
