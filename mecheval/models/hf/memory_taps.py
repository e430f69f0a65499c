"""Sites in mixers with a memory of keys and values: delta rules, mLSTM and lightning attention.

While `state` or `mixing`, in mLSTM also `log_decay`, is used, the recurrence runs token by token in
our own form, in float32, in place of the mixer's chunks.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mecheval.models.hf.tap import (
    MIXING,
    STATE,
    Function,
    Kind,
    Place,
    Sites,
    Tap,
    by_time,
    gate_out,
    read_memory,
    used,
)
from mecheval.models.ops.recurrence import Writes

EPSILON = 1e-6  # of the length of queries and keys
MEMORY = (
    Place("state", "batch time head d_key d_value", STATE, materialised=True),
    Place("mixing", "batch head time source", MIXING, materialised=True),
    Place("head_out", "batch time head d_value", "what each head reads from the memory"),
)
QUERY, KEY, VALUE = (
    Place("query", "batch time head d_key", "queries"),
    Place("key", "batch time head d_key", "keys"),
    Place("value", "batch time head d_value", "values"),
)


def _tap_convolution(function: Function, sites: Sites, mixer: nn.Module) -> Function:
    """Pass queries, keys and values, which one convolution returns together."""

    def convolution(*args: Any, **kwargs: Any) -> Tensor:
        convolved = function(*args, **kwargs)
        widths = [getattr(mixer, name) for name in _widths(mixer)]
        parts = convolved.transpose(1, 2).split(widths, dim=-1)
        names = ("q_conv_out", "k_conv_out", "v_conv_out")
        passed = [sites[name](part) for name, part in zip(names, parts, strict=True)]
        if all(new is old for new, old in zip(passed, parts, strict=True)):
            return convolved
        return torch.cat(passed, dim=-1).transpose(1, 2)

    return convolution


def _widths(mixer: nn.Module) -> tuple[str, str, str]:
    """Return the attributes that hold the widths of queries, keys and values."""
    shared = hasattr(mixer, "qkv_dim")
    return ("qkv_dim",) * 3 if shared else ("key_dim", "key_dim", "value_dim")


def _tap_delta_rule(function: Function, sites: Sites, mixer: nn.Module) -> Function:
    def rule(
        q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        beta, log_w = sites["strength"](beta), sites["log_decay"](g)
        last = None
        if used(sites, "state", "mixing"):
            normalise = options.get("use_qk_l2norm_in_kernel", False)
            o = _delta_rule(q, k, v, log_w, beta, normalise, sites).to(q.dtype)
        else:
            o, last = function(q, k, v, g=log_w, beta=beta, **options)
        return sites["head_out"](o), last

    return rule


def _delta_rule(
    q: Tensor, k: Tensor, v: Tensor, log_w: Tensor, beta: Tensor, normalise: bool, sites: Sites
) -> Tensor:
    q, k, v, log_w, beta = (x.float() for x in (q, k, v, log_w, beta))
    if normalise:
        q, k = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + EPSILON) for x in (q, k))
    log_w = log_w if log_w.dim() == 4 else log_w[..., None]
    writes = Writes(beta[..., None] * k, v, log_w, a=log_w.exp() * k)
    return read_memory(q * q.shape[-1] ** -0.5, writes, sites)


def _tap_mlstm(function: Function, sites: Sites, mixer: nn.Module) -> Function:
    def backend(
        query: Tensor, key: Tensor, value: Tensor, igate: Tensor, fgate: Tensor, **options: Any
    ) -> tuple[Tensor, Any]:
        q, k, v = (
            by_time(sites[name], x)
            for name, x in {"query": query, "key": key, "value": value}.items()
        )
        log_i, state = by_time(sites["log_input"], igate), None
        if used(sites, "log_decay", "state", "mixing"):
            h = _mlstm(q, k, v, log_i, fgate, mixer, sites).to(query.dtype)
        else:
            h, state = function(query=q, key=k, value=v, igate=log_i, fgate=fgate, **options)
        return by_time(sites["head_out"], h), state

    return backend


def _mlstm(
    q: Tensor, k: Tensor, v: Tensor, log_i: Tensor, fgate: Tensor, mixer: nn.Module, sites: Sites
) -> Tensor:
    """Return h; n is a column of the memory, whose value is always 1.

    What keeps the division from 0 is relative to the largest weight so far, exp(m).
    """
    q, k, v, log_i, fgate = (x.transpose(1, 2).float() for x in (q, k, v, log_i, fgate))
    log_f = sites["log_decay"](F.logsigmoid(fgate))
    v = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)
    writes = Writes(log_i.exp()[..., None] * k, v, log_f[..., None])
    o = read_memory(q * q.shape[-1] ** -0.5, writes, sites)
    m, largest = torch.zeros_like(log_i[:, 0]), []
    for log_f_t, log_i_t in zip(log_f.unbind(1), log_i.unbind(1), strict=True):
        m = torch.maximum(log_f_t + m, log_i_t)
        largest.append(m)
    tiny = mixer.config.eps * torch.stack(largest, dim=1).exp()  # type: ignore[union-attr,operator]
    size = o[..., -1].abs().clamp(min=1) + tiny
    return (o[..., :-1] / size[..., None]).transpose(1, 2)


def _tap_lightning_qkv(function: Function, sites: Sites, mixer: nn.Module) -> Function:
    """Pass queries, keys and values, which the mixer masks together."""

    def masked(qkv: Tensor, mask: Tensor | None) -> Tensor:
        mixer.norm.__dict__.pop("read", None)  # of a pass that failed
        parts = _by_head(function(qkv, mask), mixer).chunk(3, dim=-1)
        names = ("query", "key", "value")
        q, k, v = (sites[name](x) for name, x in zip(names, parts, strict=True))
        if used(sites, "state", "mixing"):
            log_w = -mixer.slope_rate.float().view(1, 1, -1, 1)  # type: ignore[operator]
            writes = Writes(k.float(), v.float(), log_w.expand(*k.shape[:3], 1))
            mixer.norm.read = read_memory(q.float(), writes, sites)  # type: ignore[union-attr]
        return torch.cat([q, k, v], dim=-1).flatten(start_dim=2)

    return masked


def _tap_lightning_norm(function: Function, sites: Sites, mixer: nn.Module) -> Function:
    """Pass what the heads read, which the mixer normalises."""

    def norm(x: Tensor) -> Tensor:
        o = mixer.norm.__dict__.pop("read", None)
        o = _by_head(x, mixer) if o is None else o.to(x.dtype)
        return function(sites["head_out"](o).flatten(start_dim=2))

    return norm


def _by_head(x: Tensor, mixer: Any) -> Tensor:
    return x.reshape(*x.shape[:2], mixer.num_attention_heads, -1)


def _delta_rule_kind(name: str, mark: str, decay_axes: str) -> Kind:
    conv = ("queries", "keys", "values")
    about = "log w: how much the memory keeps"
    return Kind(
        name,
        mark,
        (
            Tap(
                "causal_conv1d_fn",
                _tap_convolution,
                tuple(
                    Place(f"{what[0]}_conv_out", axes, f"{what} after convolution and silu")
                    for what, axes in zip(
                        conv,
                        ("batch time key_width",) * 2 + ("batch time value_width",),
                        strict=True,
                    )
                ),
            ),
            Tap(
                mark,
                _tap_delta_rule,
                (
                    Place("strength", "batch time head", "β: how much of each value is written"),
                    Place("log_decay", decay_axes, about),
                    *MEMORY,
                ),
            ),
            gate_out("out_proj"),
            gate_out("o_proj"),
        ),
    )


GATED_DELTA_NET = _delta_rule_kind(
    "gated_delta_net", "torch_chunk_gated_delta_rule", "batch time head"
)
KDA = _delta_rule_kind("kda", "chunk_kimi_delta_attention", "batch time head d_key")
MLSTM = Kind(
    "mlstm",
    "mlstm_backend",
    (
        Tap(
            "mlstm_backend",
            _tap_mlstm,
            (
                QUERY,
                KEY,
                VALUE,
                Place("log_input", "batch time head", "log i: how much of each token is written"),
                Place("log_decay", "batch time head", "log f: how much the memory keeps", True),
                *MEMORY,
            ),
            method="forward",
        ),
        gate_out("out_proj"),
    ),
)
LIGHTNING = Kind(
    "lightning_attention",
    "diagonal_decay",
    (
        Tap("apply_mask_to_padding_states", _tap_lightning_qkv, (QUERY, KEY, VALUE)),
        Tap("norm", _tap_lightning_norm, MEMORY, method="forward"),
        gate_out("out_proj"),
    ),
)
