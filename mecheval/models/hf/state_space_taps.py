"""Sites in Mamba, Mamba-2 and short convolutions: the functions that their mixers call.

While `state` or `mixing`, or in Mamba-2 `log_decay`, is used, the recurrence runs token by token in
our own form, in float32; otherwise the mixer's own function is called. Steps are made positive
before the function sees them, so that it is called without their bias.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from mecheval.models.hf.tap import (
    BY_CHANNEL,
    MIXING,
    STATE,
    Function,
    Kind,
    Place,
    Sites,
    Tap,
    by_time,
    edit_weights,
    gate_out,
    impulse_weights,
    read_memory,
    switch_off,
    used,
)
from mecheval.models.ops.recurrence import Writes
from mecheval.models.ops.selective_scan import (
    propagate_edit,
    read_states,
    selective_scan,
    selective_states,
)

STEPS = "step sizes: how much of each token is written and how much is forgotten"


def _tap_convolution(function: Function, sites: Sites, mixer: nn.Module) -> Function:
    return lambda *args, **kwargs: by_time(sites["conv_out"], function(*args, **kwargs))


def _tap_selective_scan(function: Function, sites: Sites, mixer: nn.Module) -> Function:
    def scan(
        x: Tensor,
        dt: Tensor,
        A: Tensor,
        B: Tensor,
        C: Tensor,
        D: Tensor,
        z: Tensor,
        delta_bias: Tensor | None = None,
        delta_softplus: bool = False,
        **options: Any,
    ) -> Tensor:
        bias = None if delta_bias is None else delta_bias[:, None]
        dt = by_time(sites["dt"], _positive(dt, bias, delta_softplus))
        B, C = by_time(sites["B"], B), by_time(sites["C"], C)
        if used(sites, "state", "mixing"):
            y = _selective_scan(x, dt, A, B, C, D, sites)
        else:
            y = function(x, dt, A, B, C, D=D, z=None, **options)
        return by_time(sites["gate_out"], by_time(sites["ssm_out"], y) * F.silu(z))

    return scan


def _selective_scan(
    x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, sites: Sites
) -> Tensor:
    """Return the outputs as (batch, d_inner, time) while state and weights pass their sites."""
    x, dt, B, C = (y.transpose(1, 2).float() for y in (x, dt, B, C))
    states = selective_states(x, dt, A, B)
    edited = sites["state"](states) if sites["state"].used else states
    y = read_states(propagate_edit(dt, A, states, edited), x, C, D)
    if sites["mixing"].used:
        weights = impulse_weights(lambda one: selective_scan(one, dt, A, B, C, D), x)
        y = edit_weights(y, weights, x, sites["mixing"])
    return y.transpose(1, 2)


def _tap_chunk_scan(function: Function, sites: Sites, mixer: nn.Module) -> Function:
    def scan(
        x: Tensor,
        dt: Tensor,
        A: Tensor,
        B: Tensor,
        C: Tensor,
        chunk_size: int,
        D: Tensor,
        dt_bias: Tensor | None = None,
        dt_softplus: bool = False,
        dt_limit: tuple[float, float] = (0.0, float("inf")),
        **options: Any,
    ) -> Tensor:
        x = sites["x_conv_out"](x.flatten(start_dim=2)).reshape(x.shape)
        B, C = sites["B_conv_out"](B), sites["C_conv_out"](C)
        dt = sites["dt"](_positive(dt, dt_bias, dt_softplus).clamp(*dt_limit))
        if used(sites, "log_decay", "state", "mixing"):
            y = _recur(x, dt, A, B, C, D, sites)
        else:
            y = function(x, dt, A, B, C, chunk_size=chunk_size, D=D, **options)
        return sites["head_out"](y).contiguous()

    return scan


def _recur(
    x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, sites: Sites
) -> Tensor:
    """Return what the heads read: linear attention with values x, keys B and queries C."""
    x, dt, B, C = (y.float() for y in (x, dt, B, C))
    B, C = (y.repeat_interleave(x.shape[2] // y.shape[2], dim=2) for y in (B, C))
    log_w = sites["log_decay"](A * dt)
    return read_memory(C, Writes(dt[..., None] * B, x, log_w[..., None]), sites, skip=D.float())


def _positive(dt: Tensor, bias: Tensor | None, softplus: bool) -> Tensor:
    dt = dt if bias is None else dt + bias.to(dt.dtype)
    return F.softplus(dt) if softplus else dt


CONVOLUTION = Tap(
    "causal_conv1d_fn",
    _tap_convolution,
    (
        Place(
            "conv_out", "batch time d_inner", "the short convolution's output, activated if it is"
        ),
    ),
)
MAMBA = Kind(
    "mamba",
    "mamba_selective_scan",
    (
        Tap("mamba_inner_fn", switch_off),
        CONVOLUTION,
        Tap(
            "mamba_selective_scan",
            _tap_selective_scan,
            (
                Place("dt", "batch time d_inner", STEPS),
                Place("B", "batch time d_state", "where in the state each token is written"),
                Place("C", "batch time d_state", "where in the state each token reads"),
                Place("state", "batch time d_inner d_state", STATE, materialised=True),
                Place("mixing", "batch d_inner time source", BY_CHANNEL, materialised=True),
                Place("ssm_out", "batch time d_inner", "what the state space model reads out"),
                Place("gate_out", "batch time d_inner", "what is read out times the gate"),
            ),
        ),
    ),
    single="n_mamba_heads",
)
MAMBA2 = Kind(
    "mamba2",
    "mamba2_chunk_scan",
    (
        Tap("mamba2_split_conv1d_scan_combined", switch_off),
        Tap(
            "mamba2_chunk_scan",
            _tap_chunk_scan,
            (
                Place("x_conv_out", "batch time d_inner", "values after convolution and silu"),
                Place("B_conv_out", "batch time group d_state", "keys after convolution and silu"),
                Place("C_conv_out", "batch time group d_state", "queries, convolved likewise"),
                Place("dt", "batch time head", STEPS),
                Place("log_decay", "batch time head", "log α: how much the memory keeps", True),
                Place("state", "batch time head d_key d_value", STATE, materialised=True),
                Place("mixing", "batch head time source", MIXING, materialised=True),
                Place("head_out", "batch time head d_value", "what each head reads"),
            ),
        ),
        gate_out("out_proj"),
    ),
)
SHORT_CONVOLUTION = Kind("conv", "causal_conv1d_fn", (CONVOLUTION, gate_out("out_proj")))
