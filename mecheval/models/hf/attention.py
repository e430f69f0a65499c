"""What attention allows: to continue behind tokens that are read, and to see its weights."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mecheval.models.hf.places import Pass
from mecheval.models.ops import Reads

SOFTMAX = {"attention", "window_attention"}
Tokens = Int[Tensor, "batch time"]
Weights = Float[Tensor, "batch head time source"]


class Attends:
    """A part of `HubModel`: its methods for models of attention."""

    module: Any
    current: Pass
    layer_kinds: tuple[str, ...]

    @property
    def reads_prefixes(self) -> bool:
        """Tell whether a pass can continue behind tokens whose keys and values are kept."""
        return set(self.layer_kinds) == {"attention"}

    def read_prefix(self, tokens: Tokens) -> Any:
        """Return the keys and values of tokens, for `resume_behind`; None of no tokens."""
        if not tokens.shape[1]:
            return None
        first = torch.zeros_like(tokens[:, :1])
        return self._with(Pass(at=first), input_ids=tokens, use_cache=True).past_key_values

    def resume_behind(self, prefix: Any, layer: int, x: Tensor, at: Reads) -> Tensor:
        """Continue behind a prefix with what enters a block; positions count from its end."""
        tokens = torch.zeros(x.shape[:2], dtype=torch.long, device=x.device)
        if prefix is None:
            return self._with(Pass(layer, x, at), input_ids=tokens, use_cache=False).logits
        kept = [(part, part.keys, part.values) for part in prefix.layers]
        given = {"input_ids": tokens, "past_key_values": prefix, "use_cache": True}
        try:
            return self._with(Pass(layer, x, at), **given).logits
        finally:
            for part, keys, values in kept:
                part.keys, part.values = keys, values

    def attention_weights(self, tokens: Tokens) -> Iterator[tuple[int, Weights]]:
        """Yield each layer that attends, with its weights."""
        before = self.module.config._attn_implementation
        self.module.set_attn_implementation("eager")  # others do not compute them
        try:
            first = Pass(at=torch.zeros_like(tokens[:, :1]))
            given = {"input_ids": tokens, "use_cache": False, "output_attentions": True}
            weights = self._with(first, **given).attentions
        finally:
            self.module.set_attn_implementation(before)
        yield from zip(self.attending, weights, strict=True)

    @property
    def attending(self) -> list[int]:
        """The layers with a mixer that has attention weights."""
        kinds = [kind.split("|") for kind in self.layer_kinds]
        return [layer for layer, parts in enumerate(kinds) if SOFTMAX & {*parts}]

    def _with(self, run: Pass, **given: Any) -> Any:
        """Run the module in one pass that every block knows of."""
        vars(self.current).update(vars(run))
        try:
            return self.module(**given)
        finally:
            vars(self.current).update(vars(Pass()))
