"""The plain form computes the same, and is plain; what is counted is what is done."""

from contextlib import suppress
from dataclasses import replace

import pytest
import torch

from benchmarks.flops import READ, SCAN, flops
from benchmarks.plain import conv1d, fft_conv, published_scan, replaced, twins
from benchmarks.rivals import Missing, mambapy_scan
from benchmarks.size import ARCHITECTURES, Size
from benchmarks.steps import UPDATES, Arena
from mecheval.models.mixers import mamba
from mecheval.models.ops.delta_rule import delta_rule
from mecheval.models.ops.long_conv import long_conv
from mecheval.models.ops.selective_scan import selective_scan
from mecheval.models.ops.short_conv import short_conv

SMALL = Size(rounds=1, batch=8, pairs=12, vocab=256, max_len=64)


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def trained(step):
    return [step() for _ in range(UPDATES + 1)][-1]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_losses_are_those_of_the_plain_form_to_five_decimals_after_four_updates(architecture):
    arena = Arena(architecture, 64, SMALL)
    ours = trained(arena.ours())
    assert trained(arena.plain(twins())) == pytest.approx(ours, abs=5e-6)
    assert abs(arena.ours()() - ours) > 1e-3, "something was learned"


@pytest.mark.parametrize(("architecture", "least"), [("mamba", 3), ("hyena", 3), ("delta_net", 2)])
def test_rivals_in_the_same_model_have_the_same_losses(architecture, least):
    ends = []
    for name, make in Arena(architecture, 16, SMALL).contestants().items():
        if name not in ("mambapy's mixer", "transformers"):
            with suppress(Missing):
                ends.append(trained(make()))
    assert len(ends) >= least
    assert ends == pytest.approx([ends[0]] * len(ends), abs=5e-6)


def test_every_op_with_a_twin_is_replaced_wherever_it_is_called_and_is_back_afterwards():
    before = mamba.selective_scan
    assert before is selective_scan
    plain = twins()
    assert {selective_scan, short_conv, long_conv, delta_rule} <= plain.keys()
    with suppress(ZeroDivisionError), replaced(plain):
        assert mamba.selective_scan is plain[selective_scan]
        raise ZeroDivisionError
    assert mamba.selective_scan is before


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_calls_an_op_that_the_plain_form_replaces(architecture):
    arena, called = Arena(architecture, 8, SMALL), []

    def never(*tensors, backend="auto"):
        called.append(tensors)
        raise AssertionError

    model, tokens = arena.model(), torch.zeros(1, 8, dtype=torch.long)
    with replaced(dict.fromkeys(twins(), never)), pytest.raises(AssertionError):
        model(tokens)
    assert called


def test_a_published_scan_and_the_usual_convolutions_are_ours():
    x, k = drawn(2, 9, 6), drawn(9, 6)
    assert torch.allclose(fft_conv(x, k), long_conv(x, k), atol=1e-5)
    weight, bias = drawn(6, 3), drawn(6)
    assert torch.allclose(conv1d(x, weight, bias), short_conv(x, weight, bias), atol=1e-6)
    inputs = (x, drawn(2, 9, 6).exp(), -drawn(6, 4).exp(), drawn(2, 9, 4), drawn(2, 9, 4), drawn(6))
    y = selective_scan(*inputs)
    assert torch.allclose(published_scan(*inputs), y, atol=1e-5)
    try:
        theirs = mambapy_scan()
    except Missing as error:
        pytest.skip(str(error))
    assert torch.allclose(theirs(*inputs), y, atol=1e-5)


def test_the_work_of_attention_is_that_of_its_equation():
    """Products forward and twice backward; the last layer asks one query of each document, and needs no keys."""
    size = replace(SMALL, pairs=28)
    batch, time, d, vocab = size.batch, 2 * size.pairs + 3, 16, size.vocab + 3
    tokens = batch * time
    first = (
        tokens * d * (3 * d + d + 8 * d) + 2 * tokens * time * d / 2
    )  # half of the past; 2 products, then 4
    last = batch * d * (4 * d + 8 * d) + 2 * batch * time * d
    assert flops(Arena("attention", d, size).ours()) == pytest.approx(
        6 * (first + last + batch * d * vocab), rel=0.01
    )


def test_the_work_of_a_scan_is_counted_for_each_token_channel_and_state():
    """One state in place of sixteen takes the scan's work away, and that of making B and C."""
    batch, d_inner, fewer = SMALL.batch, 32, 15
    tokens = batch * (2 * SMALL.pairs + 3)
    many, one = (flops(Arena(name, 16, SMALL).ours()) for name in ("mamba", "mamba:d_state=1"))
    B_and_C = (
        3 * 2 * d_inner * fewer * (tokens * 2 + tokens + batch)
    )  # in the last layer, C of one token alone
    assert many - one == (SCAN + READ) * tokens * d_inner * fewer + B_and_C
