"""RetNet agrees with MiniMax's lightning attention; what it reads depends on distances."""

import pytest
import torch
from support.numpy_reference import (
    Case,
)
from support.task_facts import relative_error

from mecheval.core.errors import InvalidInput
from mecheval.models.mixers.retnet import RetNet


@pytest.mark.parametrize("heads", [1, 2, 4])
@torch.no_grad()
def test_carried_weights_give_the_same_output_in_minimax_with_retnets_decays(heads):
    minimax = pytest.importorskip(
        "transformers.models.minimax.modeling_minimax", reason="needs transformers"
    )
    config = minimax.MiniMaxConfig(
        hidden_size=8,
        num_attention_heads=heads,
        head_dim=8 // heads,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
        block_size=16,
        hidden_act="linear",
    )
    peer = minimax.MiniMaxLightningAttention(config, 0).double()
    peer.slope_rate = -(1 - 2.0 ** -(5 + torch.arange(heads).double())).log()[:, None, None]
    factors = peer.decay_factors(peer.slope_rate)
    peer.query_decay, peer.key_decay, peer.diagonal_decay = factors
    peer.norm = torch.nn.Identity()  # theirs is over all heads
    options = {"heads": heads, "rotary": False, "expand_v": 1.0, "norm": False, "gate": False}
    for shape in [(1, 1), (2, 5), (2, 67), (1, 129)]:
        mixer, x = Case(*shape, 8, options).draw(RetNet)
        w = mixer.double().state_dict()
        w["q_proj.weight"] *= (8 // heads) ** -0.5  # theirs has no scale
        parts = [w[f"{which}_proj.weight"].unflatten(0, (heads, -1)) for which in "qkv"]
        peer.qkv_proj.weight.copy_(torch.cat(parts, dim=1).flatten(end_dim=1))
        peer.output_gate.weight.zero_()  # sigmoid(0) = ½
        peer.out_proj.weight.copy_(2 * w["o_proj.weight"])
        w["q_proj.weight"] *= (8 // heads) ** 0.5
        y, _ = peer(x.double(), None, None)
        assert relative_error(mixer(x.double()), y) <= 1e-10


@torch.no_grad()
def test_what_is_read_depends_on_distances_alone():
    """With equal tokens, what a token reads of another depends on their distance."""
    mixer, x = Case(1, 1, 8, {"heads": 2, "expand_k": 2.0}).draw(RetNet)
    weights, _ = mixer.double().mixing(x.double().expand(1, 40, 8))
    for distance in (0, 3, 17):
        same = weights[0, 1].diagonal(-distance)
        assert relative_error(same, same[:1].expand_as(same)) <= 1e-10
    fixed = RetNet(8, 129, heads=2, expand_k=2.0, rotary=False).double()
    fixed.load_state_dict(mixer.state_dict())
    weights, _ = fixed.mixing(x.double().expand(1, 40, 8))
    ratio = weights[0, :, 1:, 0] / weights[0, :, :-1, 0]
    assert relative_error(ratio, torch.tensor([[31 / 32], [63 / 64]]).expand_as(ratio)) <= 1e-10


def test_an_odd_width_of_the_keys_is_refused():
    problem = "rotary=true turns pairs of channels; the keys of a head have 3: change"
    with pytest.raises(InvalidInput, match=problem):
        RetNet(6, 129, heads=2)
    RetNet(6, 129, heads=2, rotary=False)
