"""Sites in mixers whose memory is one number for each channel: RG-LRU and RWKV-4.

While `state` or `mixing` is used, the recurrence runs token by token in our own form; otherwise the
mixer's own function is called.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mecheval.models.hf.tap import (
    BY_CHANNEL,
    STATE,
    Function,
    Kind,
    Place,
    Sites,
    Tap,
    edit_weights,
    gate_out,
    impulse_weights,
    pass_input,
    used,
)
from mecheval.models.ops.linear_scan import linear_scan, linear_scan_ref, propagate_edit


def _tap_lru(function: Function, sites: Sites, mixer: nn.Module) -> Function:
    def lru(x: Tensor, position_ids: Tensor) -> Tensor:
        return sites["lru_out"](function(sites["conv_out"](x), position_ids))

    return lru


def _tap_lru_scan(function: Function, sites: Sites, mixer: nn.Module) -> Function:
    """Pass the recurrence; it returns no last state, which the layer would keep."""

    def scan(
        hidden_states: Tensor, recurrent_gate: Tensor, reset: Tensor, recurrent_states: None
    ) -> tuple[Tensor, None]:
        a, x = sites["decay"](recurrent_gate), sites["written"](hidden_states)
        if used(sites, "state", "mixing"):
            return _lru(a * ~reset, x, sites).to(x.dtype), None
        return function(x, a, reset, recurrent_states)[0], None

    return scan


def _lru(a: Tensor, x: Tensor, sites: Sites) -> Tensor:
    a, x = a.float(), x.float()
    states = linear_scan_ref(a, x)
    edited = sites["state"](states) if sites["state"].used else states
    y = propagate_edit(a, x, states, edited)
    if not sites["mixing"].used:
        return y
    weights = impulse_weights(partial(linear_scan, a), x)
    return edit_weights(y, weights, x, sites["mixing"])


def _tap_wkv(function: Function, sites: Sites, mixer: nn.Module) -> Function:
    def wkv(
        decay: Tensor, bonus: Tensor, k: Tensor, v: Tensor, **options: Any
    ) -> tuple[Tensor, Any]:
        k, v, last = sites["key"](k), sites["value"](v), None
        if used(sites, "state", "mixing"):
            y = _wkv(decay, bonus, k, v, sites).to(k.dtype)
        else:
            y, last = function(decay, bonus, k, v, **options)
        return sites["wkv_out"](y), last

    return wkv


def _wkv(decay: Tensor, bonus: Tensor, k: Tensor, v: Tensor, sites: Sites) -> Tensor:
    """Return a mean of values: a token reads what was before it, and itself with a bonus.

    The memory is a sum of weighted values and a sum of weights, in float64 because a weight is an
    exponential.
    """
    k, v, decay, bonus = (x.double() for x in (k, v, decay.exp(), bonus))
    write = torch.stack([k.exp() * v, k.exp()], dim=-1)
    a = (-decay).exp()[:, None].expand_as(write)
    flat = a.flatten(start_dim=2), write.flatten(start_dim=2)
    states = linear_scan_ref(*flat)
    edited = states
    if sites["state"].used:
        edited = sites["state"](states.view(write.shape)).flatten(start_dim=2)
    states = propagate_edit(*flat, states, edited).view(write.shape)
    before = torch.cat([torch.zeros_like(states[:, :1]), states[:, :-1]], dim=1)
    total = before + bonus.exp()[:, None] * write
    y = total[..., 0] / total[..., 1]
    if not sites["mixing"].used:
        return y
    return edit_weights(y, _wkv_weights(decay, bonus, k), v, sites["mixing"])


def _wkv_weights(decay: Tensor, bonus: Tensor, k: Tensor) -> Tensor:
    """Return the weights of the mean: softmax_s(k_s − decay · tokens in between)."""
    places = torch.arange(k.shape[1], device=k.device)
    between = (places[:, None] - places - 1)[..., None]  # (time, source, channel)
    faded = torch.where(between < 0, bonus, -decay * between)
    logits = k[:, None] + faded.masked_fill(between < -1, -torch.inf)
    return logits.softmax(dim=2).permute(0, 3, 1, 2)


def _shift(name: str, part: str, what: str) -> Tap:
    about = f"{what} of the shifted stream, before their projection"
    place = Place(name, "batch time d_model", about)
    return Tap(part, pass_input(name), (place,), method="forward")


RG_LRU = Kind(
    "rg_lru",
    "rg_lru",
    (
        Tap(
            "rg_lru",
            _tap_lru,
            (Place("conv_out", "batch time d_rnn", "the stream after the short convolution"),),
            method="forward",
        ),
        Tap(
            "rg_lru",
            _tap_lru_scan,
            (
                Place("decay", "batch time d_rnn", "a, from 0 to 1: how much each channel keeps"),
                Place("written", "batch time d_rnn", "what is added to each channel"),
                Place("state", "batch time d_rnn", STATE, materialised=True),
                Place("mixing", "batch d_rnn time source", BY_CHANNEL, materialised=True),
                Place("lru_out", "batch time d_rnn", "what is read out of the memory"),
            ),
            method="_rnn_scan",
        ),
        gate_out("linear_out"),
    ),
)
RWKV4 = Kind(
    "rwkv4",
    "rwkv_linear_attention",
    (
        _shift("k_conv_out", "key", "keys"),
        _shift("v_conv_out", "value", "values"),
        _shift("r_conv_out", "receptance", "gates"),
        Tap(
            "rwkv_linear_attention",
            _tap_wkv,
            (
                Place("key", "batch time d_inner", "keys: logarithms of weights"),
                Place("value", "batch time d_inner", "values"),
                Place(
                    "state",
                    "batch time d_inner sum",
                    "the sums of weighted values and of weights after each token, which the next"
                    " token reads; later tokens continue from an edited one",
                    materialised=True,
                ),
                Place("mixing", "batch d_inner time source", BY_CHANNEL, materialised=True),
                Place("wkv_out", "batch time d_inner", "the mean of values that is read"),
            ),
        ),
        gate_out("output"),
    ),
)
