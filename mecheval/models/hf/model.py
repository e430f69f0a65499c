"""A causal language model of `transformers` with sites, trained elsewhere or here."""

import importlib.util
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mecheval.core.errors import InvalidInput
from mecheval.models.external import ExternalModel, add_site, check_passes, tied_names
from mecheval.models.hf.attention import Attends
from mecheval.models.hf.families import ALIASES, FAMILIES, Family
from mecheval.models.hf.layout import Layer, find_layers, guess_family, place_inside
from mecheval.models.hf.places import (
    Boundary,
    Pass,
    Reading,
    Sum,
    is_open,
    open_block,
    put_at,
)
from mecheval.models.ops import Reads
from mecheval.models.site import Site, record, sites

Tokens = Int[Tensor, "batch time"]
Logits = Float[Tensor, "batch reads vocab"]
STREAM = "batch time d_model"
UNLIMITED = 2**20  # tokens, where the family has no longest input


class HubModel(Attends, ExternalModel):
    """A model of `transformers` as ours are: tokens to logits, with sites.

    `load_hf` returns one. The module is not copied: its classes are changed so that its tensors
    pass the sites.

    Parameters
    ----------
    module
        A causal language model of `transformers`.
    name
        How it is called in messages.
    tokenizer
        Its tokenizer, if it has one.

    Examples
    --------
    >>> import torch
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from mecheval import HubModel, sites
    >>> sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1}
    >>> module = LlamaForCausalLM(LlamaConfig(vocab_size=12, num_hidden_layers=2, **sizes))
    >>> model = HubModel(module)
    >>> model(torch.randint(12, (2, 5)), at=torch.tensor([[4], [4]])).shape
    torch.Size([2, 1, 12])
    >>> list(sites(model))[:4]
    ['embed_out', 'blocks.0.block_in', 'blocks.0.mixer_in', 'blocks.0.mixer.query']
    """

    tolerance = 1e-5  # of checks: transformers computes norms and decays in float32 at any dtype

    def __init__(self, module: Any, name: str = "", tokenizer: Any = None) -> None:
        nn.Module.__init__(self)
        config = module.config
        self.family, self._name, self.tokenizer = config.model_type, name, tokenizer
        family = FAMILIES.get(self.family) or guess_family(module)
        if is_open(module):
            raise InvalidInput(f"this {type(module).__name__} has sites already; load it again")
        if (package := family.replaced_by) and importlib.util.find_spec(package):
            problem = f"the package {package} replaces the classes of {self.family}"
            raise InvalidInput(f"{problem}, whose tensors are not known then; uninstall it")
        for setting, value in family.settings.items():
            setattr(config, setting, value)
        module.set_experts_implementation("eager")  # the grouped product has no float64
        self.vocab_size, self.d_model = int(config.vocab_size), int(config.hidden_size)
        self.max_len = int(getattr(config, "max_position_embeddings", None) or UNLIMITED)
        self.notes = family.notes
        layers = find_layers(module, family)
        self.layer_kinds = tuple(layer.kind for layer in layers)
        self.kinds = self.layer_kinds if len(set(self.layer_kinds)) > 1 else ()
        self.current = Pass()
        named = dict(_place_sites(module, family, layers, self.current))
        for site_name, site in named.items():
            add_site(self, site_name, site)
        self.module, self.takes_at = module, True
        self._ties = tied_names(module.state_dict(prefix="module.", keep_vars=True))
        self.eval()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            check_passes(self, named)
            _check_blocks(self)

    def forward(self, tokens: Tokens, at: Reads | None = None) -> Logits:
        """Return logits at every position, or at the positions `at` of each row."""
        return self._forward(tokens, Pass(at=at))

    def resume(self, layer: int, x: Tensor, at: Reads | None = None) -> Logits:
        """Continue the forward pass from the input of a block, or behind the last one."""
        tokens = torch.zeros(x.shape[:2], dtype=torch.long, device=x.device)  # not read
        return self._forward(tokens, Pass(layer, x, at))

    @property
    def name(self) -> str:
        return self._name or ALIASES.get(self.family, self.family)

    @property
    def depth(self) -> int:
        """The number of blocks."""
        return len(self.layer_kinds)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def about(self) -> dict[str, Any]:
        """Return what `mecheval show model` says of it besides its cost."""
        return {
            "family": ALIASES.get(self.family, self.family),
            "d_model": self.d_model,
            "kinds": list(self.layer_kinds),
            "sites": len(sites(self)),
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": str(self.device),
            "notes": list(self.notes),
        }

    def _forward(self, tokens: Tokens, run: Pass) -> Logits:
        vars(self.current).update(vars(run))  # the object that every block holds
        try:
            logits = self.module(input_ids=tokens, use_cache=False).logits
        finally:
            vars(self.current).update(vars(Pass()))
        return logits


def _check_blocks(model: HubModel) -> None:
    """Refuse a model that sees the future, or whose blocks share more than the stream.

    What enters a block must determine the logits: a verdict, and a pass that resumes there, rely
    on it.
    """
    tokens = torch.arange(6, device=model.device).view(2, 3) % (model.vocab_size - 1) + 1
    changed = tokens.clone()
    changed[:, -1] = 0
    names = [f"blocks.{layer}.block_in" for layer in range(model.depth)]
    with record(model, names) as entering:
        logits = model(tokens)
    others = model(torch.zeros_like(tokens))
    if not logits.isfinite().all():
        raise InvalidInput(f"the logits of {model.name} are not finite; load it in float32")
    unit = max(1e-5, 4 * torch.finfo(logits.dtype).eps)
    close = unit * (others - logits).abs().max()
    if not (model(changed) - logits)[:, :-1].abs().max() <= close:
        raise InvalidInput(f"{model.name} sees the future: it is not a causal language model")
    for layer, name in enumerate(names):
        if not (model.resume(layer, entering[name]) - logits).abs().max() <= close:
            reason = "the logits depend on more than what enters the block"
            raise InvalidInput(f"site {name!r} of {model.name} is bypassed: {reason}")


def _place_sites(
    module: Any, family: Family, layers: list[Layer], current: Pass
) -> Iterator[tuple[str, Site]]:
    """Create the sites in the order of the forward pass, where their tensors pass them."""
    yield "embed_out", _place(module, f"output of {family.embed}", "the embedded tokens")
    width = module.config.hidden_size
    for index, layer in enumerate(layers):
        prefix = f"blocks.{index}."
        entering = Site(STREAM, "the stream before the block")
        yield f"{prefix}block_in", entering
        for name, site in _place_in_block(layer, family, module.config.model_type, current):
            yield prefix + name, site
        open_block(layer.module, Boundary(index, entering, current, width, family.carries))
        about = "the stream after the block"
        yield f"{prefix}block_out", _place(module, f"output of {layer.path}", about)
    if family.norm:
        about = "the stream after the last block"
        yield "final_in", _place(module, f"input of {family.norm}", about)
    put_at(module, f"input of {family.head}", Reading(current))


def _place_in_block(
    layer: Layer, family: Family, name: str, current: Pass
) -> Iterator[tuple[str, Site]]:
    """Create the sites of a block's mixer and MLP, where the family has them."""
    block, places = layer.module, layer.places
    if layer.mixers:
        inside = dict(place_inside(layer, name))  # before the sites at its ends
        yield "mixer_in", _place(block, places["mixer_in"], "the mixer's input")
        yield from inside.items()
        about = "what the mixer adds to the stream"
        if family.sums:
            total = Site(STREAM, about)
            adding = Sum(total, block, list(family.sums.values()), current)
            for path in family.sums:
                put_at(block, f"output of {path}", adding)
            yield "mixer_out", total
        else:
            yield "mixer_out", _place(block, places["mixer_out"], about)
    if "mlp_in" in places:
        yield "mlp_in", _place(block, places["mlp_in"], "the MLP's input")
        yield "mlp_out", _place(block, places["mlp_out"], "what the MLP adds to the stream")


def _place(root: nn.Module, where: str, about: str) -> Site:
    site = Site(STREAM, about)
    put_at(root, where, site)
    return site
