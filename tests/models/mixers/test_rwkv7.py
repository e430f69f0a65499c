"""RWKV-7 agrees with its recurrence in numpy and with sums over all pairs of tokens."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.numpy_reference import (
    Case,
    assert_agreement,
    assert_built_from,
    at_every_shape,
    numbers,
    sigmoid,
    some_and_all,
)
from support.task_facts import relative_error

from mecheval.models.mixers.rwkv7 import RWKV7, rank
from mecheval.models.ops.recurrence import recurrence_ref
from mecheval.models.ops.short_conv import short_conv_ref

OFF = {"shift": False, "decay": "none", "delta": False, "rate": False}
OFF |= {"bonus": False, "gate": False, "norm": False}
CASES = at_every_shape(
    (4, {}),
    (8, {"heads": 2}),
    (12, {"heads": 4}),
    (8, {"heads": 2, "decay": "head", "bonus": False}),
    (4, {"decay": "none", "rate": False}),
    (4, {"shift": False, "norm": False}),
    (4, {"delta": False, "gate": False}),
    (4, OFF),
    (4, {}, {"w0": 30, "a0": 100}),
)


def reference(w, x, heads=1, **switches):
    """Compute S_t = S_{t−1} (diag(w) − κᵀ (a ∘ κ)) + vᵀ k̃, the paper's memory of rows, and y_t."""
    use = {**dict.fromkeys(OFF, True), "decay": "channel", **switches}
    d_model = x.shape[-1]
    d_head = d_model // heads
    y, states = np.empty_like(x), np.empty((*x.shape[:2], heads, d_head, d_head))
    for n in range(len(x)):
        S, last = np.zeros((heads, d_head, d_head)), np.zeros(d_model)
        for t, now in enumerate(x[n]):
            part = {which: shifted(w, now, last, which, use["shift"]) for which in "rwkvag"}
            r, k, v = (w[f"{which}_proj.weight"] @ part[which] for which in "rkv")
            last, key, a = now, k, np.ones(d_model)
            if use["rate"]:
                a = sigmoid(w["a0"] + low_rank(w, "a", part["a"]))
                k = k * (1 + (a - 1) * w["k_a"])
            keep = np.ones(d_model)
            if use["decay"] != "none":
                z = w["w0"] + low_rank(w, "w", part["w"], np.tanh)
                keep = np.repeat(np.exp(-sigmoid(z) / math.sqrt(math.e)), d_model // len(z))
            y[n, t] = 0
            for h in range(heads):
                here = slice(h * d_head, (h + 1) * d_head)
                G = np.diag(keep[here])
                if use["delta"]:
                    kappa = key[here] * w["k_k"][here]
                    kappa = kappa / np.linalg.norm(kappa)
                    G = G - np.outer(kappa, a[here] * kappa)
                S[h] = S[h] @ G + np.outer(v[here], k[here])
                o = S[h] @ r[here]
                if use["norm"]:
                    o = (o - o.mean()) / np.sqrt(o.var() + 1e-5 * d_head)
                    o = o * w["g_norm.weight"][here] + w["g_norm.bias"][here]
                if use["bonus"]:
                    o = o + (r[here] @ (w["r_k"][h] * k[here])) * v[here]
                y[n, t, here] = o
            gate = low_rank(w, "g", part["g"], sigmoid) if use["gate"] else 1
            y[n, t] = w["o_proj.weight"] @ (y[n, t] * gate)
            states[n, t] = np.swapaxes(S, 1, 2)
    return y, states


def shifted(w, now, last, which, shift):
    return (
        now + w[f"{which}_shift.mu"] * (last - now) if shift and f"{which}_shift.mu" in w else now
    )


def low_rank(w, which, x, between=lambda z: z):
    return w[f"{which}_lora.2.weight"] @ between(w[f"{which}_lora.0.weight"] @ x)


@some_and_all(CASES)
def test_the_output_is_the_recurrence(cases):
    for case in cases:
        mixer, x = case.draw(RWKV7)
        y, states = reference(numbers(mixer), x.double().numpy(), **case.options)
        assert_agreement(case, mixer, x, y, state=states)


@pytest.mark.slow
def test_it_equals_the_mixer_built_from_plain_ops():
    twins = {"mixers.rwkv7.short_conv": short_conv_ref}
    twins |= {"mixers.recurrent.recurrence": recurrence_ref}
    assert_built_from(twins, RWKV7, CASES)


def sum_over_pairs(p, x, heads):
    """Compute y_t from Σ_i v_iᵀ k̃_i Π_{i<j≤t} G_j in the parameters of RWKV-LM, without a memory.

    The decay is written as exp(−exp(w)), with w soft-clamped below −½, as the authors have it.
    """
    batch, time, d_model = x.shape
    shape = batch, time, heads, d_model // heads
    shift = F.pad(x, (0, 0, 1, -1)) - x
    xr, xw, xk, xv, xa, xg = (x + shift * p[f"x_{which}"] for which in "rwkvag")
    r, k, v = xr @ p["receptance"].T, xk @ p["key"].T, xv @ p["value"].T
    w = -F.softplus(-(p["w0"] + torch.tanh(xw @ p["w1"]) @ p["w2"])) - 0.5
    a = torch.sigmoid(p["a0"] + xa @ p["a1"] @ p["a2"])
    g = torch.sigmoid(xg @ p["g1"]) @ p["g2"]
    removed = F.normalize((k * p["k_k"]).view(shape), dim=-1)
    r, k, v, a, w = (z.view(shape) for z in (r, k + k * (a - 1) * p["k_a"].flatten(), v, a, w))
    G = torch.diag_embed(torch.exp(-torch.exp(w)))
    G = G - removed[..., :, None] * (a * removed)[..., None, :]
    o = torch.zeros(shape, dtype=x.dtype)
    for t in range(time):
        back = r[:, t]  # Π G_j applied to r, from the last factor to the first
        for i in range(t, -1, -1):
            o[:, t] += (k[:, i] * back).sum(dim=-1, keepdim=True) * v[:, i]
            back = (G[:, i] @ back[..., None])[..., 0]
    normed = F.group_norm(
        o.view(batch * time, d_model), heads, p["ln_x.weight"], p["ln_x.bias"], 1e-5 * shape[3]
    )
    y = normed.view(shape) + (r * k * p["r_k"]).sum(dim=-1, keepdim=True) * v
    return (y.flatten(start_dim=2) * g) @ p["output"].T


def carried(mixer):
    """Return the weights by their names in RWKV-LM, which has LoRAs the other way round."""
    w = mixer.state_dict()
    names = {"r_proj": "receptance", "k_proj": "key", "v_proj": "value", "o_proj": "output"}
    vectors = ("w0", "a0", "k_k", "k_a", "r_k")
    layers = ((which, layer) for which in "wag" for layer in (0, 2))
    return {
        **{there: w[f"{here}.weight"] for here, there in names.items()},
        **{f"x_{which}": w[f"{which}_shift.mu"].view(1, 1, -1) for which in "rwkvag"},
        **{name: w[name] for name in vectors},
        **{
            f"{which}{layer // 2 + 1}": w[f"{which}_lora.{layer}.weight"].T
            for which, layer in layers
        },
        **{f"ln_x.{which}": w[f"g_norm.{which}"] for which in ("weight", "bias")},
    }


@pytest.mark.parametrize("heads", [1, 2, 4])
@torch.no_grad()
def test_carried_weights_give_the_sums_over_pairs_of_tokens(heads):
    for shape in [(1, 1), (2, 2), (3, 5), (2, 17), (1, 40)]:
        mixer, x = Case(*shape, 8, {"heads": heads}).draw(RWKV7)
        exact = sum_over_pairs(carried(mixer.double()), x.double(), heads)
        assert relative_error(mixer(x.double()), exact) <= 1e-10
        assert relative_error(mixer.float()(x), exact) <= 1e-5


@torch.no_grad()
def test_without_all_parts_it_is_linear_attention_without_a_normaliser():
    mixer, x = Case(2, 33, 8, {**OFF, "heads": 2}).draw(RWKV7)
    x = x.double()
    r, k, v = (mixer.double().get_submodule(f"{which}_proj")(x) for which in "rkv")
    r, k, v = (part.unflatten(2, (2, 4)).transpose(1, 2) for part in (r, k, v))
    exact = mixer.o_proj(((r @ k.mT).tril() @ v).transpose(1, 2).flatten(start_dim=2))
    assert relative_error(mixer(x), exact) <= 1e-12


@torch.no_grad()
def test_a_token_shift_sees_one_token_back():
    mixer, x = Case(1, 9, 8, {}).draw(RWKV7)
    shift, edited = mixer.k_shift, x.clone()
    edited[:, 4] += 1
    changed = (shift(edited) != shift(x)).any(dim=2)[0]
    assert changed.nonzero().flatten().tolist() == [4, 5]


def test_vectors_start_as_in_the_published_first_layer():
    mixer = RWKV7(128, 16, heads=2)
    n, within = np.arange(128), np.tile(np.arange(64), 2)
    zigzag = (within - 31.5) / 31.5
    zigzag, linear = zigzag * np.abs(zigzag), n / 127 - 0.5
    published = {
        "r_shift.mu": 1 - (n / 128) ** 0.2,
        "w_shift.mu": 1 - (n / 128) ** 0.9,
        "k_shift.mu": 1 - (n / 128) ** 0.7,
        "v_shift.mu": 1 - (n / 128) ** 0.7,
        "a_shift.mu": 1 - (n / 128) ** 0.9,
        "g_shift.mu": 1 - (n / 128) ** 0.2,
        "w0": -6 + 6 * n / 127 + 0.5 + 2.5 * zigzag,
        "a0": -0.19 + 0.3 * zigzag + 0.4 * linear,
        "k_k": 0.71 - 0.1 * linear,
        "k_a": np.full(128, 1.02),
        "r_k": np.full((2, 64), -0.04),
    }
    weights = numbers(mixer)
    for name, start in published.items():
        assert np.abs(weights[name] - start).max() < 1e-5, name


def test_ranks_are_published_ones_and_no_wider_than_the_model():
    widths = (4, 16, 64, 256, 768, 2048)
    assert [rank(d_model, 2.5) for d_model in widths] == [4, 16, 32, 32, 64, 128]
    assert [rank(d_model, 5.0) for d_model in widths] == [4, 16, 32, 64, 128, 224]
