"""RetNet agrees with its recurrence, the published retention and MiniMax's lightning attention."""

import math

import numpy as np
import pytest
import torch
from support.additive_reference import (
    assert_an_emptied_memory_begins_anew,
    assert_mixing_is_what_is_read,
    gated_output,
    projected,
    published,
    rms_normalised,
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
from mecheval.models.mixers.retnet import RetNet
from mecheval.models.ops.per_token import rms_norm_ref, silu_gate_ref
from mecheval.models.ops.recurrence import recurrence_ref
from mecheval.models.ops.rotary import rotate_ref
from mecheval.models.ops.short_conv import short_conv_silu_ref

CASES = at_every_shape(
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


def turned(z):
    """Turn the pairs (i, i + d/2) of one document's queries or keys by t · 10000^(−2i/d)."""
    half = z.shape[2] // 2
    result = np.empty_like(z)
    for t in range(len(z)):
        for i in range(half):
            angle = t * 10000.0 ** (-i / half)
            matrix = np.array(
                [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
            )
            result[t, :, [i, i + half]] = matrix @ z[t][:, [i, i + half]].T
    return result


def reference(w, x, heads=1, d_conv=0, decay=True, rotary=True, **_):
    """Compute the outputs and the memory of the equations at the top of the mixer's file."""
    outputs, memories = [], []
    for document in x:
        parts = {}
        for which in "qkv":
            z = document @ w[f"{which}_proj.weight"].T
            if d_conv:
                z = silu(convolve(z, w[f"{which}_conv.weight"][:, 0, ::-1].T))
            z = z.reshape(len(document), heads, -1)
            parts[which] = turned(z) if rotary and which in "qk" else z
        kept = np.array([1 - 2.0 ** (-5 - h) if decay else 1.0 for h in range(heads)])
        kept = np.broadcast_to(kept[:, None], parts["k"].shape)
        o, states = step_by_step(*parts.values(), kept)
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
        mixer, x = case.draw(RetNet)
        y, states = reference(numbers(mixer), x.double().numpy(), **case.options)
        assert_agreement(case, mixer, x, y, state=states)


def retention(p, x, heads=1, decay=True, rotary=True, **_):
    """Compute (Q Kᵀ ∘ D) V, D_nm = γ^(n−m) for n ≥ m, with Θ_n = e^(inθ) as complex numbers."""
    q, k, v = (projected(p, x, which, heads) for which in "qkv")
    n = np.arange(x.shape[1])
    if rotary:
        half = q.shape[3] // 2
        theta = 10000.0 ** -(np.arange(half) / half)
        turn = np.exp(1j * n[:, None] * theta)[:, None]
        q, k = (z[..., :half] + 1j * z[..., half:] for z in (q, k))
        q, k = q * turn, (k * turn).conj()
    gamma = 1 - np.exp2(-5.0 - np.arange(heads)) if decay else np.ones(heads)
    distance = n[:, None] - n
    D = np.where(distance >= 0, gamma[:, None, None] ** np.maximum(distance, 0), 0)
    scores = np.einsum("bnhi,bmhi->bhnm", q, k).real * D
    scores /= math.sqrt(p["q_proj.weight"].shape[0] // heads)
    return gated_output(p, np.einsum("bhnm,bmhv->bnhv", scores, v), x)


@some_and_all(CASES)
def test_it_is_the_published_retention_with_the_published_weights(cases):
    for case in cases:
        mixer, x = case.draw(RetNet)
        truth = retention(published("retnet", mixer), x.double().numpy(), **case.options)
        assert_agreement(case, mixer, x, truth)


@pytest.mark.parametrize("options", [{"heads": 2, "d_conv": 2}, {"rotary": False}], ids=str)
def test_weights_times_values_are_what_is_read(options):
    mixer, x = Case(2, 33, 8, options).draw(RetNet)
    assert_mixing_is_what_is_read(mixer.double(), x.double())


@pytest.mark.parametrize("options", [{"heads": 2}, {"decay": False}], ids=str)
def test_a_document_begins_anew_where_the_memory_is_emptied(options):
    mixer, x = Case(2, 33, 8, options).draw(RetNet)
    assert_an_emptied_memory_begins_anew(mixer.double(), x.double(), after=9)


@pytest.mark.slow
def test_it_equals_the_mixer_built_from_plain_ops():
    twins = {"layers.short_conv_silu": short_conv_silu_ref, "layers.rms_norm": rms_norm_ref}
    twins |= {"mixers.recurrent.recurrence": recurrence_ref, "mixers.retnet.rotate": rotate_ref}
    twins |= {"mixers.additive.silu_gate": silu_gate_ref}
    assert_built_from(twins, RetNet, CASES)


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
