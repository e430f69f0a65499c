"""Sites in softmax attention: the function that a layer takes from transformers' interface.

The layer's own function is called, be it sdpa or eager. Only while `scores` is used are the weights
computed here: q·k times the scale, soft cap, position bias, mask, sinks, softmax in at least
float32.
"""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mecheval.core.errors import InvalidInput
from mecheval.models.hf.tap import Function, Kind, Place, Sites, Tap, by_time
from mecheval.models.ops.causal_attention import in_window

Heads = Float[Tensor, "batch head time d_head"]
SharedHeads = Float[Tensor, "batch kv_head source d_head"]
Weights = Float[Tensor, "batch head time source"]


class _Interface:
    """Gives attention functions that pass sites."""

    def __init__(self, interface: Any, sites: Sites) -> None:
        self.interface, self.sites = interface, sites

    def get_interface(self, name: str, default: Function) -> Function:
        return partial(_attend, self.interface.get_interface(name, default), self.sites)


def _tap_interface(interface: Any, sites: Sites, mixer: nn.Module) -> Any:
    return _Interface(interface, sites)


def _attend(
    function: Function,
    sites: Sites,
    module: nn.Module,
    query: Heads,
    key: SharedHeads,
    value: Tensor,
    attention_mask: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Call an attention function; what each head reads comes as (batch, time, head, d_head)."""
    q, k, v = (
        by_time(sites[name], x) for name, x in {"query": query, "key": key, "value": value}.items()
    )
    if sites["scores"].used:
        weights = sites["scores"](_weights(module, q, k, attention_mask, options))
        shown = nn.functional.dropout(weights, options.get("dropout") or 0.0, module.training)
        o = (shown @ _for_all_heads(v, q)).transpose(1, 2)
    else:
        o, weights = function(module, q, k, v, attention_mask, **options)
    return sites["head_out"](o), weights


def _weights(
    module: nn.Module, q: Heads, k: SharedHeads, mask: Tensor | None, options: dict[str, Any]
) -> Weights:
    scale, cap = options.get("scaling"), options.get("softcap")
    logits = q @ _for_all_heads(k, q).mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if cap is not None:
        logits = cap * torch.tanh(logits / cap)
    if (bias := options.get("position_bias")) is not None:
        logits = logits + bias
    logits = _mask(logits, _seen(module, logits, options) if mask is None else mask)
    sinks = options.get("s_aux")
    if sinks is not None:  # logits that no value belongs to
        columns = sinks.view(1, -1, 1, 1).expand(*logits.shape[:3], -1)
        logits = torch.cat([logits, columns], dim=-1)
    precise = torch.promote_types(q.dtype, torch.float32)
    weights = logits.softmax(dim=-1, dtype=precise).to(q.dtype)
    return weights if sinks is None else weights[..., :-1]


def _seen(module: nn.Module, logits: Weights, options: dict[str, Any]) -> Tensor:
    """Return what is seen where the layer is given no mask: the past, or all."""
    causal = options.get("is_causal")
    if not (getattr(module, "is_causal", True) if causal is None else causal):
        return torch.ones_like(logits, dtype=torch.bool)
    places = torch.arange(logits.shape[2], device=logits.device)
    return in_window(places, logits.shape[3], options.get("sliding_window") or 0)


def _mask(logits: Weights, mask: Tensor) -> Weights:
    if mask.dtype == torch.bool:
        return logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
    if mask.dim() != 4:
        problem = f"the attention mask has the shape {tuple(mask.shape)}"
        advice = "load the model with attn_implementation='sdpa' or 'eager'"
        raise InvalidInput(f"site 'scores' cannot be computed: {problem}; {advice}")
    return logits + mask


def _for_all_heads(x: Tensor, q: Heads) -> Tensor:
    """Return keys or values for each of the heads that share them."""
    return x.repeat_interleave(q.shape[1] // x.shape[1], dim=1)


ATTENTION = Kind(
    "attention",
    "ALL_ATTENTION_FUNCTIONS",
    (
        Tap(
            "ALL_ATTENTION_FUNCTIONS",
            _tap_interface,
            (
                Place("query", "batch time head d_head", "queries, after rotary positions"),
                Place("key", "batch time kv_head d_head", "keys, after rotary positions"),
                Place("value", "batch time kv_head d_head", "values"),
                Place(
                    "scores",
                    "batch head time source",
                    "attention weights; rows sum to 1, less what sinks take",
                    materialised=True,
                ),
                Place("head_out", "batch time head d_head", "what each head reads"),
            ),
        ),
    ),
)
