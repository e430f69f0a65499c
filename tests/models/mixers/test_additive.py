"""GLA, RetNet and HGRN2 agree with their recurrence and with the parallel form of their papers."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
from support.additive_reference import (
    assert_an_emptied_memory_begins_anew,
    assert_mixing_is_what_is_read,
    gla_over_pairs,
    gla_recurrence,
    hgrn2_over_pairs,
    hgrn2_recurrence,
    published,
    retention,
    retnet_recurrence,
)
from support.numpy_reference import (
    Case,
    assert_agreement,
    assert_built_from,
    at_every_shape,
    numbers,
)

from mecheval.models.mixers.gla import GLA
from mecheval.models.mixers.hgrn2 import HGRN2
from mecheval.models.mixers.retnet import RetNet
from mecheval.models.ops.per_token import rms_norm_ref, silu_gate_ref
from mecheval.models.ops.recurrence import recurrence_ref
from mecheval.models.ops.rotary import rotate_ref
from mecheval.models.ops.short_conv import short_conv_ref, short_conv_silu_ref

GLA_CASES = at_every_shape(
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
RETNET_CASES = at_every_shape(
    (4, {}),
    (8, {"heads": 2, "d_conv": 4}),
    (8, {"heads": 2, "expand_k": 0.5, "expand_v": 0.75}),
    (12, {"heads": 3, "expand_k": 1.5}),
    (4, {"rotary": False}),
    (4, {"decay": False, "gate": False}),
    (4, {"decay": False, "rotary": False, "norm": False}),
    (8, {"heads": 4, "norm": False, "d_conv": 2}),
    (6, {"rotary": False, "heads": 2, "gate": False, "norm": False}),
)
HGRN2_CASES = at_every_shape(
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


class Mixer(NamedTuple):
    """A mixer with its two references; `mixing` and `emptied` are options of those tests."""

    kind: type
    cases: list[Case]
    recurrence: Callable
    parallel: Callable
    mixing: list[Mapping[str, Any]]
    emptied: list[Mapping[str, Any]]
    twins: Mapping[str, Callable]


PLAIN = {"layers.rms_norm": rms_norm_ref, "mixers.recurrent.recurrence": recurrence_ref}
GATED = {**PLAIN, "layers.short_conv_silu": short_conv_silu_ref}
GATED["mixers.additive.silu_gate"] = silu_gate_ref
MIXERS = {
    "gla": Mixer(
        GLA,
        GLA_CASES,
        gla_recurrence,
        gla_over_pairs,
        mixing=[{"heads": 2, "d_conv": 2}, {"decay": "head", "gate": False}],
        emptied=[{"heads": 2}, {"decay": "none"}],
        twins=GATED,
    ),
    "retnet": Mixer(
        RetNet,
        RETNET_CASES,
        retnet_recurrence,
        retention,
        mixing=[{"heads": 2, "d_conv": 2}, {"rotary": False}],
        emptied=[{"heads": 2}, {"decay": False}],
        twins={**GATED, "mixers.retnet.rotate": rotate_ref},
    ),
    "hgrn2": Mixer(
        HGRN2,
        HGRN2_CASES,
        hgrn2_recurrence,
        hgrn2_over_pairs,
        mixing=[{"heads": 2, "d_conv": 2}, {"decay": False}],
        emptied=[{"heads": 2}, {"lower_bound": 0.5}],
        twins={**PLAIN, "layers.short_conv": short_conv_ref},
    ),
}
every_mixer = pytest.mark.parametrize("name", MIXERS)
some_and_all = pytest.mark.parametrize(
    "step", [11, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"]
)


@some_and_all
@every_mixer
def test_the_output_is_the_recurrence(name, step):
    mixer = MIXERS[name]
    for case in mixer.cases[::step]:
        module, x = case.draw(mixer.kind)
        y, states = mixer.recurrence(numbers(module), x.double().numpy(), **case.options)
        assert_agreement(case, module, x, y, state=states)


@some_and_all
@every_mixer
def test_it_is_the_parallel_form_with_the_published_weights(name, step):
    mixer = MIXERS[name]
    for case in mixer.cases[::step]:
        module, x = case.draw(mixer.kind)
        truth = mixer.parallel(published(name, module), x.double().numpy(), **case.options)
        assert_agreement(case, module, x, truth)


@every_mixer
def test_weights_times_values_are_what_is_read(name):
    for options in MIXERS[name].mixing:
        module, x = Case(2, 33, 8, options).draw(MIXERS[name].kind)
        assert_mixing_is_what_is_read(module.double(), x.double())


@every_mixer
def test_a_document_begins_anew_where_the_memory_is_emptied(name):
    for options in MIXERS[name].emptied:
        module, x = Case(2, 33, 8, options).draw(MIXERS[name].kind)
        assert_an_emptied_memory_begins_anew(module.double(), x.double(), after=9)


@pytest.mark.slow
@every_mixer
def test_it_equals_the_mixer_built_from_plain_ops(name):
    mixer = MIXERS[name]
    assert_built_from(dict(mixer.twins), mixer.kind, mixer.cases)
