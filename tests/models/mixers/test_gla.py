"""GLA agrees with its recurrence, with the paper's parallel form, and with what it ablates to."""

import numpy as np
import pytest
import torch
from support.additive_reference import (
    assert_an_emptied_memory_begins_anew,
    assert_mixing_is_what_is_read,
    gated_output,
    log_sigmoid,
    over_all_pairs,
    projected,
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

from mecheval.core.errors import InvalidInput
from mecheval.models.mixers.gla import GLA
from mecheval.models.mixers.retnet import RetNet
from mecheval.models.ops.per_token import rms_norm_ref, silu_gate_ref
from mecheval.models.ops.recurrence import recurrence_ref
from mecheval.models.ops.short_conv import short_conv_silu_ref

CASES = at_every_shape(
    (4, {}),
    (8, {"heads": 2, "d_conv": 4}),
    (8, {"heads": 3, "expand_k": 0.75, "expand_v": 1.5, "d_conv": 2}),
    (4, {"decay": "none", "gate": False}),
    (4, {"decay": "constant", "heads": 2, "norm": False}),
    (8, {"decay": "head", "heads": 2, "gate": False, "d_conv": 1}),
    (4, {"decay_rank": 3, "tau": 0.5}),
    (4, {"decay": "none", "norm": False, "gate": False, "d_conv": 3}),
    (4, {}, {"gk_proj.1.weight": 100}),
    (4, {"tau": 0.01}, {"gk_proj.1.bias": 30}),
)


def reference(w, x, heads=1, d_conv=0, decay="channel", tau=16.0, **_):
    """Compute the outputs and the memory of the equations at the top of the mixer's file."""
    outputs, memories = [], []
    for document in x:
        parts = {}
        for which in "qkv":
            z = document @ w[f"{which}_proj.weight"].T
            if d_conv:
                z = silu(convolve(z, w[f"{which}_conv.weight"][:, 0, ::-1].T))
            parts[which] = z.reshape(len(document), heads, -1)
        kept = np.ones((len(document), heads, 1))
        if decay == "constant":
            kept = kept - 2.0 ** -(5 + np.arange(heads))[:, None]
        elif decay != "none":
            z = document @ w["gk_proj.0.weight"].T @ w["gk_proj.1.weight"].T + w["gk_proj.1.bias"]
            kept = (sigmoid(z) ** (1 / tau)).reshape(len(document), heads, -1)
        o, states = step_by_step(*parts.values(), np.broadcast_to(kept, parts["k"].shape))
        if "o_norm.weight" in w:
            o = rms_normalised(o, w["o_norm.weight"])
        o = o.reshape(len(document), -1)
        if "g_proj.weight" in w:
            o = o * silu(document @ w["g_proj.weight"].T)
        outputs.append(o @ w["o_proj.weight"].T)
        memories.append(states)
    return np.stack(outputs), np.stack(memories)


@some_and_all(CASES)
def test_the_output_is_the_recurrence(cases):
    for case in cases:
        mixer, x = case.draw(GLA)
        y, states = reference(numbers(mixer), x.double().numpy(), **case.options)
        assert_agreement(case, mixer, x, y, state=states)


def parallel(p, x, heads=1, decay="channel", tau=16.0, **_):
    """Compute the output as a sum over all pairs of tokens, from weights by fla's names."""
    q, k, v = (projected(p, x, which, heads) for which in "qkv")
    log_w = np.zeros((*x.shape[:2], heads, 1))
    if decay == "constant":
        log_w = log_w + np.log(1 - 0.5 ** (5.0 + np.arange(heads)))[:, None]
    elif decay != "none":
        z = (x @ p["gk_proj.0.weight"].T) @ p["gk_proj.1.weight"].T + p["gk_proj.1.bias"]
        log_w = (log_sigmoid(z) / tau).reshape(*x.shape[:2], heads, -1)
    return gated_output(p, over_all_pairs(q, k, v, log_w), x)


@some_and_all(CASES)
def test_it_is_the_sum_over_all_pairs_of_tokens_with_the_published_weights(cases):
    for case in cases:
        mixer, x = case.draw(GLA)
        truth = parallel(published("gla", mixer), x.double().numpy(), **case.options)
        assert_agreement(case, mixer, x, truth)


@pytest.mark.parametrize(
    "options", [{"heads": 2, "d_conv": 2}, {"decay": "head", "gate": False}], ids=str
)
def test_weights_times_values_are_what_is_read(options):
    mixer, x = Case(2, 33, 8, options).draw(GLA)
    assert_mixing_is_what_is_read(mixer.double(), x.double())


@pytest.mark.parametrize("options", [{"heads": 2}, {"decay": "none"}], ids=str)
def test_a_document_begins_anew_where_the_memory_is_emptied(options):
    mixer, x = Case(2, 33, 8, options).draw(GLA)
    assert_an_emptied_memory_begins_anew(mixer.double(), x.double(), after=9)


@pytest.mark.slow
def test_it_equals_the_mixer_built_from_plain_ops():
    twins = {"layers.short_conv_silu": short_conv_silu_ref, "layers.rms_norm": rms_norm_ref}
    twins |= {"mixers.recurrent.recurrence": recurrence_ref}
    twins |= {"mixers.additive.silu_gate": silu_gate_ref}
    assert_built_from(twins, GLA, CASES)


@torch.no_grad()
def test_without_decay_norm_and_gate_it_is_linear_attention():
    options = {"decay": "none", "norm": False, "gate": False, "heads": 2}
    mixer, x = Case(2, 67, 8, options).draw(GLA)
    mixer, x = mixer.double(), x.double()
    q, k, v = (
        layer(x).unflatten(2, (2, -1)).transpose(1, 2)
        for layer in (mixer.q_proj, mixer.k_proj, mixer.v_proj)
    )
    weights = (q @ k.mT / q.shape[-1] ** 0.5).tril()
    truth = mixer.o_proj((weights @ v).transpose(1, 2).flatten(2))
    assert relative_error(mixer(x), truth) <= 1e-12


@pytest.mark.parametrize("decay", ["constant", "none"])
@torch.no_grad()
def test_it_is_retnet_without_rotary_positions(decay):
    mixer, x = Case(2, 67, 8, {"decay": decay, "heads": 2, "d_conv": 2}).draw(GLA)
    options = {"decay": decay == "constant", "rotary": False, "expand_k": 0.5, "expand_v": 1.0}
    retnet = RetNet(8, 129, heads=2, d_conv=2, **options).double()
    retnet.load_state_dict(mixer.double().state_dict())
    assert torch.equal(mixer(x.double()), retnet(x.double()))


@torch.no_grad()
def test_a_gate_that_is_open_forgets_nothing():
    mixer, x = Case(2, 67, 8, {"heads": 2}).draw(GLA)
    mixer, x = mixer.double(), x.double()
    mixer.gk_proj[1].bias.fill_(1000.0)
    open_gate = mixer(x)
    endless = GLA(8, 129, heads=2, decay="none").double()
    endless.load_state_dict(mixer.state_dict(), strict=False)
    assert relative_error(open_gate, endless(x)) <= 1e-12


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"decay": "none", "tau": 8.0}, "tau=8 needs a decay that is learned"),
        ({"decay": "constant", "decay_rank": 4}, "decay_rank=4 needs a decay that is learned"),
        ({"heads": 3}, "expand_k=0.5 times d_model=8 must be a multiple of heads=3"),
    ],
)
def test_options_of_a_part_that_is_absent_are_refused(options, part):
    with pytest.raises(InvalidInput, match=part):
        GLA(8, 129, **options)
