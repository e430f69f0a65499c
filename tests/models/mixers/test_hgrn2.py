"""HGRN2 agrees with its recurrence, with a sum over all pairs of tokens, and with a gated RNN."""

import numpy as np
import pytest
import torch
from support.additive_reference import (
    assert_an_emptied_memory_begins_anew,
    assert_mixing_is_what_is_read,
    convolved,
    over_all_pairs,
    published,
    rms_normalised,
    sigmoid,
    step_by_step,
)
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

from mecheval.models.mixers.hgrn2 import HGRN2
from mecheval.models.ops.per_token import rms_norm_ref
from mecheval.models.ops.recurrence import recurrence_ref
from mecheval.models.ops.short_conv import short_conv_ref

CASES = at_every_shape(
    (4, {}),
    (8, {"heads": 2, "d_conv": 4}),
    (6, {"heads": 3, "lower_bound": 0.9}),
    (4, {"heads": 4, "lower_bound": 0.3, "d_conv": 2}),
    (4, {"norm": False}),
    (4, {"decay": False}),
    (4, {"decay": False, "lower_bound": 0.5, "norm": False, "d_conv": 1}),
    (4, {"lower_bound": 1e-6}, {"f_proj.weight": 30}),
    (4, {}, {"f_proj.weight": 30}),
)


def reference(w, x, heads=1, d_conv=0, decay=True, lower_bound=0.0, **_):
    """Compute the outputs and the memory of the equations at the top of the mixer's file."""
    outputs, memories = [], []
    for document in x:
        parts = {}
        for which in "qfi":
            z = document @ w[f"{which}_proj.weight"].T
            if d_conv:
                z = convolve(z, w[f"{which}_conv.weight"][:, 0, ::-1].T)
            parts[which] = z.reshape(len(document), heads, -1)
        f = lower_bound + (1 - lower_bound) * sigmoid(parts["f"])
        kept = f if decay else np.ones_like(f)
        o, states = step_by_step(silu(parts["q"]), 1 - f, parts["i"], kept)
        o = o.reshape(len(document), -1)
        if "g_norm.weight" in w:
            o = rms_normalised(o, w["g_norm.weight"])
        outputs.append(o @ w["o_proj.weight"].T)
        memories.append(states)
    return np.stack(outputs), np.stack(memories)


@some_and_all(CASES)
def test_the_output_is_the_recurrence(cases):
    for case in cases:
        mixer, x = case.draw(HGRN2)
        y, states = reference(numbers(mixer), x.double().numpy(), **case.options)
        assert_agreement(case, mixer, x, y, state=states)


def parallel(p, x, heads=1, decay=True, lower_bound=0.0, **_):
    """Compute the output as a sum over all pairs of tokens, from weights by fla's names.

    With g = log f as fla has it, the logarithm of a sum of exponentials, and keys 1 − exp(g).
    """
    z = {which: x @ p[f"{which}_proj.weight"].T for which in "qfi"}
    for which in "qfi":
        if f"{which}_conv1d.weight" in p:
            rows = [convolved(row, p[f"{which}_conv1d.weight"]) for row in z[which]]
            z[which] = np.stack(rows)
    g = -np.logaddexp(0, -z["f"])
    if lower_bound:
        g = np.logaddexp(np.log(lower_bound), np.log1p(-lower_bound) + g)
    q, k, v, g = (
        part.reshape(*x.shape[:2], heads, -1) for part in (silu(z["q"]), -np.expm1(g), z["i"], g)
    )
    o = over_all_pairs(q, k, v, g if decay else 0 * g).reshape(x.shape)
    return (rms_normalised(o, p["g_norm.weight"]) if "g_norm.weight" in p else o) @ p[
        "o_proj.weight"
    ].T


@some_and_all(CASES)
def test_it_is_the_sum_over_all_pairs_of_tokens_with_the_published_weights(cases):
    for case in cases:
        mixer, x = case.draw(HGRN2)
        truth = parallel(published("hgrn2", mixer), x.double().numpy(), **case.options)
        assert_agreement(case, mixer, x, truth)


@pytest.mark.parametrize("options", [{"heads": 2, "d_conv": 2}, {"decay": False}], ids=str)
def test_weights_times_values_are_what_is_read(options):
    mixer, x = Case(2, 33, 8, options).draw(HGRN2)
    assert_mixing_is_what_is_read(mixer.double(), x.double())


@pytest.mark.parametrize("options", [{"heads": 2}, {"lower_bound": 0.5}], ids=str)
def test_a_document_begins_anew_where_the_memory_is_emptied(options):
    mixer, x = Case(2, 33, 8, options).draw(HGRN2)
    assert_an_emptied_memory_begins_anew(mixer.double(), x.double(), after=9)


@pytest.mark.slow
def test_it_equals_the_mixer_built_from_plain_ops():
    twins = {"layers.short_conv": short_conv_ref, "layers.rms_norm": rms_norm_ref}
    twins |= {"mixers.recurrent.recurrence": recurrence_ref}
    assert_built_from(twins, HGRN2, CASES)


@torch.no_grad()
def test_with_one_channel_a_head_it_is_a_gated_rnn():
    """With as many heads as channels: h_t = f_t ∘ h_{t−1} + (1 − f_t) ∘ i_t, as in HGRN."""
    mixer, x = Case(2, 67, 6, {"heads": 6, "norm": False}).draw(HGRN2)
    mixer, x = mixer.double(), x.double()
    h, truth = torch.zeros(2, 6, dtype=torch.float64), []
    for t in range(67):
        q, f, i = mixer.q_proj(x[:, t]), mixer.f_proj(x[:, t]).sigmoid(), mixer.i_proj(x[:, t])
        h = f * h + (1 - f) * i
        truth.append(mixer.o_proj(q * q.sigmoid() * h))
    assert relative_error(mixer(x), torch.stack(truth, dim=1)) <= 1e-12


@torch.no_grad()
def test_what_is_held_is_a_mean_of_the_values():
    """The weights of all values in a row of the memory add up to 1 − Π f."""
    mixer, x = Case(1, 67, 6, {"heads": 2, "lower_bound": 0.4}).draw(HGRN2)
    mixer, x = mixer.double(), x.double()
    writes = mixer.writes(x)
    ones = torch.ones_like(writes.v)
    held = torch.zeros(1, 2, 3, 3, dtype=torch.float64)
    for t in range(67):
        held = writes.w[:, t, :, :, None] * held + writes.k[:, t, :, :, None] * ones[:, t, :, None]
        truth = 1 - writes.log_w[:, : t + 1].sum(dim=1).exp()
        assert relative_error(held, truth[..., None].expand_as(held)) <= 1e-12
    assert float(writes.w.min()) >= 0.4


def test_its_state_is_the_memory_and_what_the_convolutions_keep():
    memory, inputs = 2 * 4 * 4, 3 * 3 * 8
    assert HGRN2(8, 129, heads=2, d_conv=4).state_size(7) == memory + inputs
    assert HGRN2(8, 129, heads=2).state_size(7) == memory
