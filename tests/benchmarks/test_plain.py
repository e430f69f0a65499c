"""The plain form computes the same as mecheval, and the counted work is that of the equations."""

from contextlib import suppress
from dataclasses import replace

import pytest
import torch

from benchmarks.floors import LOSS_DIFFERENCE_IN_DOUBLE
from benchmarks.flops import (
    DECAY_FLOPS,
    ERASE_FLOPS,
    READ_FLOPS,
    SCAN_FLOPS,
    count_flops,
)
from benchmarks.plain import conv1d, fft_conv, published_scan, replace_ops, twins
from benchmarks.rivals import Missing, mambapy_scan
from benchmarks.size import ARCHITECTURES, FULL, NEWER, Size
from benchmarks.steps import UPDATES, Setup
from benchmarks.transformers_mixers import MIXERS, with_mixers_of_transformers
from mecheval.models.mixers import mamba, recurrent, rg_lru
from mecheval.models.ops.delta_rule import delta_rule
from mecheval.models.ops.linear_scan import linear_scan, linear_scan_read
from mecheval.models.ops.long_conv import long_conv
from mecheval.models.ops.recurrence import recurrence, recurrence_read
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


@pytest.mark.parametrize("architecture", [*NEWER, FULL.newer_grown[-1]])
def test_losses_of_newer_mixers_are_those_of_the_plain_form(architecture):
    """In double precision: in single, AdamW's first update enlarges the rounding of a gradient."""
    assert Setup(architecture, 16, SMALL).difference_in_double() <= LOSS_DIFFERENCE_IN_DOUBLE.value


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
    assert {recurrence, recurrence_read, linear_scan, linear_scan_read} <= plain.keys()
    with suppress(ZeroDivisionError), replace_ops(plain):
        assert mamba.selective_scan is plain[selective_scan]
        raise ZeroDivisionError
    assert mamba.selective_scan is before


@pytest.mark.parametrize("architecture", [name for name in NEWER if name != "transformer"])
def test_the_plain_form_of_a_newer_mixer_computes_its_recurrence_by_the_twin(architecture):
    """Every layer calls the twin once."""
    plain, calls = twins(), []
    for op in (recurrence, linear_scan):
        plain[op] = lambda *inputs, twin=plain[op]: calls.append(twin) or twin(*inputs)
    setup = Setup(architecture, 16, SMALL)
    with replace_ops(plain):
        assert recurrent.recurrence is plain[recurrence]
        assert rg_lru.linear_scan is plain[linear_scan]
    assert setup.plain(plain)() > 0
    assert len(calls) == setup.model().config.layers


@pytest.mark.parametrize("architecture", MIXERS)
def test_a_mixer_of_transformers_has_the_weights_of_ours_but_for_a_bias(architecture):
    setup = Setup(architecture, 64, SMALL)
    ours, theirs = setup.model(), None
    try:
        theirs = with_mixers_of_transformers(setup.model(), setup.task.max_len)
    except Missing as error:
        pytest.skip(str(error))
    one, other = (
        sum(weight.numel() for weight in model.blocks[0].mixer.parameters())
        for model in (ours, theirs)
    )
    # ours has a bias after the output of attention, and in the gate of KDA
    assert one - other == (64 if architecture in ("kda", "transformer") else 0)
    x = random_tensor(2, setup.task.max_len, 64)
    mixer, last = theirs.blocks[0].mixer, x.clone()
    last[:, -1] += 1
    assert mixer(x).shape == x.shape
    torch.testing.assert_close(mixer(last)[:, :-1], mixer(x)[:, :-1])  # it is causal


def test_training_with_the_mixers_of_transformers_lowers_the_loss():
    contestants = Setup("rg_lru", 16, SMALL).contestants()
    torch.manual_seed(0)
    try:
        step = contestants["transformers"]()
    except Missing as error:
        pytest.skip(str(error))
    losses = [step() for _ in range(60)]
    assert sum(losses[-5:]) < sum(losses[:5]) - 0.5, "a mean of five, since batches differ"


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


@pytest.mark.parametrize(
    ("fewer", "more", "each"),
    [("delta=false", "delta=true", ERASE_FLOPS), ("decay=none", "decay=constant", DECAY_FLOPS)],
)
def test_the_work_of_a_recurrence_is_counted_for_each_number_of_its_memory(fewer, more, each):
    """The last layer, which is read at one token, is not counted."""
    tokens = SMALL.batch * (2 * SMALL.pairs + 3)
    one, other = (
        count_flops(Setup(f"gated_delta_net:{option}", 16, SMALL).ours())
        for option in (fewer, more)
    )
    assert other - one == each * tokens * 12 * 24  # keys × values
