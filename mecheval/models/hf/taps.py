"""Sites inside the mixers of transformers models.

A mixer calls its convolution, scan or attention as functions of its module, with tensors that no
submodule returns. `place_taps` changes the mixers' classes so that their own forward pass runs with
other functions under these names: wrapped, to pass tensors through sites. The module itself is not
changed, and nothing is registered anywhere.

With idle sites the same functions are called with the same numbers, so that logits are the same
bits. Use `use_cache=False`: a pass with a cache is refused while a site is used.
"""

import inspect
import types
from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import nn

from mecheval.core.errors import InvalidInput
from mecheval.models.hf.attention_tap import ATTENTION
from mecheval.models.hf.channel_taps import RG_LRU, RWKV4
from mecheval.models.hf.memory_taps import GATED_DELTA_NET, KDA, LIGHTNING, MLSTM
from mecheval.models.hf.state_space_taps import MAMBA, MAMBA2, SHORT_CONVOLUTION
from mecheval.models.hf.tap import Function, Kind, Sites, Tap, Wrap
from mecheval.models.site import Site

# the short convolution is last, because other mixers have one too
KINDS = (
    ATTENTION,
    MAMBA,
    MAMBA2,
    GATED_DELTA_NET,
    KDA,
    MLSTM,
    LIGHTNING,
    RG_LRU,
    RWKV4,
    SHORT_CONVOLUTION,
)
CACHES = ("cache_params", "past_key_values", "layer_past", "use_cache")


def place_taps(mixers: Mapping[str, nn.Module], family: str) -> dict[str, Site]:
    """Return new sites inside mixers, by name, after changing the mixers so that they pass them.

    Call it before sites at a mixer's own input or output are placed. A mixer of another kind than
    `KINDS` has none.

    Parameters
    ----------
    mixers
        Mixer modules by the prefix of their sites' names.
    family
        The model's `model_type`, for messages.

    Returns
    -------
    dict
        Sites by their names, for each mixer in the order of its forward pass.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from mecheval.models.hf.taps import place_taps
    >>> config = LlamaConfig(vocab_size=8, hidden_size=8, num_attention_heads=2,
    ...     num_hidden_layers=1, intermediate_size=8)
    >>> model = LlamaForCausalLM(config)
    >>> list(place_taps({"blocks.0.mixer": model.model.layers[0].self_attn}, "llama"))[-1]
    'blocks.0.mixer.head_out'
    """
    if len({id(mixer) for mixer in mixers.values()}) < len(mixers):
        names = ", ".join(mixers)
        raise InvalidInput(f"of {names} in {family}, two are one module; give it one name")
    sites: dict[str, Site] = {}
    for prefix, mixer in mixers.items():
        if (kind := kind_of(mixer)) is not None:
            _refuse_bypass(mixer, prefix, family)
            own = _open(mixer, kind)
            sites |= {f"{prefix}.{name}": site for name, site in own.items()}
    return sites


def kind_of(mixer: nn.Module) -> Kind | None:
    """Return the kind of a mixer, known by what its forward pass calls, or None."""
    changed = type(mixer).forward.__module__.split(".")[0] == "mecheval"
    if changed:
        raise InvalidInput(f"{type(mixer).__name__} has sites already; load the model again")
    names = _code(type(mixer).forward).co_names
    for kind in KINDS:
        if kind.mark in names and getattr(mixer, kind.single, 1) == 1:
            return kind
    return None


def _refuse_bypass(mixer: nn.Module, prefix: str, family: str) -> None:
    """Refuse a layer that computes attention by itself, so that no site would be passed."""
    own = getattr(mixer, "reorder_and_upcast_attn", False)
    if own and getattr(mixer.config, "_attn_implementation", "") == "eager":
        problem = f"{prefix} of {family} computes attention by itself, with reorder_and_upcast_attn"
        raise InvalidInput(f"{problem}; load the model with attn_implementation='sdpa'")


def _exists(tap: Tap, mixer: nn.Module) -> bool:
    if tap.method:
        return isinstance(getattr(mixer, tap.name, None), nn.Module)
    return tap.name in _code(type(mixer).forward).co_names


def _open(mixer: nn.Module, kind: Kind) -> dict[str, Site]:
    """Return a mixer's sites, after changing it and its tapped submodules so that they are passed.

    The sites are no submodules of it.
    """
    taps = [tap for tap in kind.taps if _exists(tap, mixer)]
    shared = getattr(mixer, "num_key_value_groups", 1) > 1
    sites = {place.name: place.site(shared) for tap in taps for place in tap.places}
    for tap in taps:
        if tap.method:
            _change(getattr(mixer, tap.name), tap.method, tap.wrap, (sites, mixer))
    wraps = {tap.name: tap.wrap for tap in taps if not tap.method}
    _change(mixer, "forward", partial(_with_functions, wraps), (sites, mixer))
    return sites


def _change(part: nn.Module, method: str, wrap: Wrap, inputs: tuple[Sites, nn.Module]) -> None:
    """Change the class of a module so that one of its methods is wrapped.

    The inputs of the wrap are kept beside the module's own attributes, so that a copy of the model
    has its own. They are no submodules: a mixer would be one of itself.
    """
    original, kept = getattr(type(part), method), f"tapped_{method}"

    def changed(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return wrap(partial(original, self), *getattr(self, kept))(*args, **kwargs)

    setattr(part, kept, inputs)
    part.__class__ = types.new_class(
        type(part).__name__, (type(part),), {}, lambda body: body.update({method: changed})
    )


def _with_functions(
    wraps: Mapping[str, Wrap], forward: partial[Any], sites: Sites, mixer: nn.Module
) -> Function:
    """Return the mixer's forward pass with functions that pass its sites."""
    original = inspect.unwrap(forward.func)
    names = original.__globals__
    tapped = {name: wrap(names[name], sites, mixer) for name, wrap in wraps.items()}

    def run(*args: Any, **kwargs: Any) -> Any:
        if any(site.used for site in sites.values()):
            _refuse_cache(mixer, kwargs)
        return _rebound(original, tapped)(mixer, *args, **kwargs)

    return run


def _rebound(function: types.FunctionType, names: Mapping[str, Any]) -> types.FunctionType:
    """Return a copy of a function that finds other objects under some names of its module."""
    copy = types.FunctionType(
        function.__code__,
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _refuse_cache(mixer: nn.Module, options: Mapping[str, Any]) -> None:
    given = [name for name in CACHES if options.get(name) not in (None, False)]
    if given:
        problem = f"{type(mixer).__name__} was called with {given[0]}"
        raise InvalidInput(f"{problem}; sites inside mixers need use_cache=False")


def _code(function: Function) -> types.CodeType:
    return inspect.unwrap(function).__code__
