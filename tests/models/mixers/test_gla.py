"""GLA without its parts is linear attention, RetNet, and a memory that forgets nothing."""

import pytest
import torch
from support.numpy_reference import (
    Case,
)
from support.task_facts import relative_error

from mecheval.core.errors import InvalidInput
from mecheval.models.mixers.gla import GLA
from mecheval.models.mixers.retnet import RetNet


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
