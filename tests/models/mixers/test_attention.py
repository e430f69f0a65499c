"""Attention agrees with its equation, written in numpy, and with Llama's, Qwen3's and Mistral's."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from support.numpy_reference import (
    PRECISION,
    Case,
    assert_agreement,
    assert_built_from,
    at_every_shape,
    numbers,
    recorded,
    some_and_all,
)
from support.task_facts import relative_error

from mecheval.models.mixers.attention import Attention
from mecheval.models.site import record, sites

CASES = at_every_shape(
    (1, {}),
    (4, {}),
    (6, {"heads": 3}),
    (8, {"heads": 2}),
    (8, {"heads": 8}),
    (12, {"heads": 4}),
    (5, {}, {"qkv_proj.weight": 4}),
    (6, {"heads": 2}, {"qkv_proj.weight": 1e-3}),
    (4, {"heads": 2}, {"qkv_proj.weight": 4}),
)


# every combination of window, rotary positions, grouped keys and q/k norm, and single options
MODERN = at_every_shape(
    *(
        (8, {"heads": 4, "kv_heads": kv_heads, "window": window, "rotary": rotary, "qk_norm": norm})
        for kv_heads, window, rotary, norm in product(
            (0, 1, 2), (0, 3), (False, True), (False, True)
        )
    ),
    (4, {"window": 1}),
    (4, {"window": 64}, {"qkv_proj.weight": 4}),
    (6, {"rotary": True, "rotary_base": 100.0, "window": 200}),
    (12, {"heads": 6, "kv_heads": 6, "qk_norm": True}, {"qkv_proj.weight": 1e-3}),
)


def reference(w, x, heads=1, kv_heads=0, window=0, rotary=False, rotary_base=1e4, qk_norm=False):
    """Return the output and the attention weights, one head and one position at a time."""
    d_model, d_head = x.shape[-1], x.shape[-1] // heads
    kv_heads, window = kv_heads or heads, window or x.shape[1]
    y, scores = np.empty_like(x), np.zeros((len(x), heads, x.shape[1], x.shape[1]))
    q_rows, k_rows, v_rows = np.split(w["qkv_proj.weight"], [d_model, d_model + kv_heads * d_head])
    for b in range(len(x)):
        read = np.empty((x.shape[1], d_model))
        for h in range(heads):
            own = np.arange(h * d_head, (h + 1) * d_head)
            shared = own % d_head + h // (heads // kv_heads) * d_head
            q, k, v = x[b] @ q_rows[own].T, x[b] @ k_rows[shared].T, x[b] @ v_rows[shared].T
            if qk_norm:
                q, k = normalised(q, w["q_norm.weight"]), normalised(k, w["k_norm.weight"])
            if rotary:
                q, k = turned(q, rotary_base), turned(k, rotary_base)
            for t in range(x.shape[1]):
                past = slice(max(0, t + 1 - window), t + 1)
                weight = np.exp(k[past] @ q[t] / math.sqrt(d_head))
                scores[b, h, t, past] = weight / weight.sum()
                read[t, own] = scores[b, h, t, past] @ v[past]
        y[b] = read @ w["out_proj.weight"].T + w["out_proj.bias"]
    return y, scores


def normalised(z, weight):
    return weight * z / np.sqrt((z * z).mean(-1, keepdims=True) + 1e-6)


def turned(z, base):
    """Multiply the pairs of channels, as complex numbers, by exp(i t base^(−2c/d))."""
    pairs = z.shape[1] // 2
    angles = np.outer(np.arange(len(z)), base ** (-np.arange(pairs) / pairs))
    turned = (z[:, :pairs] + 1j * z[:, pairs:]) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag], axis=1)


def assert_is_the_equation(cases):
    for case in cases:
        mixer, x = case.draw(Attention)
        y, scores = reference(numbers(mixer), x.double().numpy(), **case.options)
        assert_agreement(case, mixer, x, y, scores=scores)


def test_the_output_is_the_equation():
    assert_is_the_equation(CASES)


@some_and_all(MODERN)
def test_the_output_is_the_equation_with_every_option(cases):
    assert_is_the_equation(cases)


def attention_ref(q, k, v, window):
    """Compute a recurrence over the sources that rescales the softmax for each new one."""
    assert window == 0
    d_head, time = q.shape[-1], q.shape[1]
    highest, total, read = (
        torch.full_like(q[..., :1], -torch.inf),
        torch.zeros_like(q[..., :1]),
        torch.zeros_like(v),
    )
    for s in range(time):
        logit = (q[:, s:] * k[:, s, None]).sum(dim=-1, keepdim=True) / d_head**0.5
        top = torch.maximum(highest[:, s:], logit)
        old, new = torch.exp(highest[:, s:] - top), torch.exp(logit - top)
        highest[:, s:], total[:, s:] = top, old * total[:, s:] + new
        read[:, s:] = old * read[:, s:] + new * v[:, s, None]
    return read / total


def test_it_equals_the_mixer_built_from_plain_ops():
    assert_built_from({"mixers.attention.causal_attention": attention_ref}, Attention, CASES)


def test_grouped_keys_and_values_are_sites_with_an_axis_of_their_own():
    mixer, x = Case(2, 7, 8, {"heads": 4, "kv_heads": 2}).draw(Attention)
    with record(mixer, ["query", "key", "value"]) as seen:
        mixer(x)
    assert {name: tuple(tensor.shape) for name, tensor in seen.items()} == {
        "query": (2, 7, 4, 2),
        "key": (2, 7, 2, 2),
        "value": (2, 7, 2, 2),
    }
    assert "kv_head" in sites(mixer)["key"].axes
    assert "kv_head" not in sites(Attention(8, 7, heads=4, kv_heads=4))["key"].axes


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({}, 2 * 8 * 7),
        ({"kv_heads": 1}, 2 * 2 * 7),
        ({"window": 3}, 2 * 8 * 2),
        ({"window": 9}, 2 * 8 * 7),
        ({"window": 3, "kv_heads": 2}, 2 * 4 * 2),
    ],
)
def test_the_state_is_the_keys_and_values_that_the_next_token_sees(options, numbers):
    assert Attention(8, 64, heads=4, **options).state_size(7) == numbers


@torch.no_grad()
def test_with_rotary_positions_shifted_documents_have_shifted_outputs():
    mixer, x = Case(1, 20, 8, {"heads": 2, "rotary": True, "window": 4}).draw(Attention)
    mixer, x = mixer.double(), x.double()
    assert relative_error(mixer(x[:, 9:])[:, 3:], mixer(x)[:, 12:]) <= 1e-10


def carried(mixer):
    """Return the weights by their names in transformers; the output there has no bias."""
    weights = mixer.state_dict()
    parts = weights["qkv_proj.weight"].split(mixer.part_widths["qkv_proj"])
    peer = {f"{which}_proj.weight": part for which, part in zip("qkv", parts, strict=True)}
    norms = {name: weight for name, weight in weights.items() if name.endswith("norm.weight")}
    return {**peer, **norms, "o_proj.weight": weights["out_proj.weight"]}


def output_there(name, mixer, x, options):
    """Compute the output by a class of transformers, with its own mask and rotary positions."""
    family = name.lower()
    there = pytest.importorskip(f"transformers.models.{family}.modeling_{family}")
    from transformers import masking_utils

    heads, window = options["heads"], options.get("window")
    known = {"sliding_window": window, "use_sliding_window": True, "max_window_layers": 0}
    config = getattr(there, f"{name}Config")(
        hidden_size=x.shape[2],
        num_attention_heads=heads,
        num_key_value_heads=options.get("kv_heads") or heads,
        head_dim=x.shape[2] // heads,
        num_hidden_layers=1,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": options["rotary_base"]},
        attn_implementation="sdpa",  # the eager form casts to float32
        **(known if window else {}),
    )
    peer = getattr(there, f"{name}Attention")(config, 0).to(x.dtype).eval()
    peer.load_state_dict(carried(mixer))
    positions = torch.arange(x.shape[1])[None]
    rotary = getattr(there, f"{name}RotaryEmbedding")(config)
    # its frequencies are rounded to float32, so their equation in float64 takes their place
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    angles = (positions[..., None] / options["rotary_base"] ** exponents).repeat(1, 1, 2)
    torch.testing.assert_close(rotary(x, positions)[0], angles.cos().to(x), rtol=1e-4, atol=1e-4)
    kind = "sliding_window_causal" if window else "causal"
    mask = getattr(masking_utils, f"create_{kind}_mask")(
        config=config, inputs_embeds=x, attention_mask=None, past_key_values=None
    )
    return peer(x, (angles.cos().to(x), angles.sin().to(x)), mask)[0] + mixer.out_proj.bias


PEERS = [
    ("Llama", {"heads": 1}),
    ("Llama", {"heads": 4}),
    ("Llama", {"heads": 4, "kv_heads": 2, "rotary_base": 500.0}),
    ("Llama", {"heads": 4, "kv_heads": 1}),
    ("Qwen3", {"heads": 4, "kv_heads": 2, "qk_norm": True}),
    ("Qwen3", {"heads": 2, "qk_norm": True, "window": 5}),
    ("Mistral", {"heads": 4, "kv_heads": 2, "window": 3}),
    ("Mistral", {"heads": 2, "window": 64}),
]


@pytest.mark.parametrize(("name", "options"), PEERS, ids=str)
@torch.no_grad()
def test_carried_weights_give_the_same_output_in_transformers(name, options):
    options = {"rotary": True, "rotary_base": 1e4, **options}
    for shape in [(1, 1), (2, 5), (2, 67), (1, 129)]:
        mixer, x = Case(*shape, 16, options).draw(Attention)
        for dtype, tolerance in PRECISION.items():
            mixer, x = mixer.to(dtype), x.to(dtype)
            y = output_there(name, mixer, x, options)
            if "qk_norm" in options:
                tolerance = PRECISION[torch.float32]  # Qwen3's norm casts to it
            assert relative_error(mixer(x), y) <= tolerance, (shape, dtype)


def test_some_cases_attend_uniformly_and_some_to_one_source():
    late = [scores[:, :, 32:] for scores in recorded("scores", Attention, CASES, time=64)]
    assert min(float(scores[:, :, -1].max()) for scores in late) < 1.001 / 64
    assert max(float(scores.max()) for scores in late) > 0.999
