"""A causal language model of `transformers` with sites, trained elsewhere or here."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mecheval.core.errors import InvalidInput
from mecheval.models.external import (
    ExternalModel,
    add_site,
    check_boundaries,
    check_passes,
    tied_names,
)
from mecheval.models.hf.attention import Attends
from mecheval.models.hf.families import ALIASES, FAMILIES, Family
from mecheval.models.hf.layout import Layer, find_layers, place_inside
from mecheval.models.hf.places import Boundary, Pass, Reading, Sum, open_block, put_at
from mecheval.models.ops import Reads
from mecheval.models.site import Site

Tokens = Int[Tensor, "batch time"]
Logits = Float[Tensor, "batch reads vocab"]
STREAM = "batch time d_model"


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

    def __init__(self, module: Any, name: str = "", tokenizer: Any = None) -> None:
        nn.Module.__init__(self)
        config = module.config
        self.family, self._name, self.tokenizer = config.model_type, name, tokenizer
        family = FAMILIES.get(self.family) or guess_family(module)
        for setting, value in family.settings.items():
            setattr(config, setting, value)
        self.vocab_size = int(config.vocab_size)
        self.max_len = int(getattr(config, "max_position_embeddings", None) or 2**20)
        self.run = Pass()
        layers = find_layers(module, family)
        self.depth, self.layer_kinds = len(layers), tuple(layer.kind for layer in layers)
        self.kinds = self.layer_kinds if len(set(self.layer_kinds)) > 1 else ()
        self.notes = family.notes
        named = dict(_place_sites(module, family, layers, self.run))
        for site_name, site in named.items():
            add_site(self, site_name, site)
        self.module, self.takes_at = module, True
        self._ties = tied_names(module.state_dict(prefix="module.", keep_vars=True))
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            check_passes(self, named)
            check_boundaries(self, [name for name in named if name.endswith("block_in")])

    def forward(self, tokens: Tokens, at: Reads | None = None) -> Logits:
        """Return logits at every position, or at the positions `at` of each row."""
        return self._forward(tokens, Pass(at=at))

    def resume(self, layer: int, x: Tensor, at: Reads | None = None) -> Logits:
        """Continue the forward pass from the input of a block, or behind the last one."""
        tokens = torch.zeros(x.shape[:2], dtype=torch.long, device=x.device)
        return self._forward(tokens, Pass(layer, x, at))

    @property
    def name(self) -> str:
        return self._name or ALIASES.get(self.family, self.family)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def _forward(self, tokens: Tokens, run: Pass) -> Logits:
        vars(self.run).update(vars(run))  # every block holds this one
        try:
            logits = self.module(input_ids=tokens, use_cache=False).logits
        finally:
            vars(self.run).update(vars(Pass()))
        return logits


def _place_sites(
    module: Any, family: Family, layers: list[Layer], run: Pass
) -> Iterator[tuple[str, Site]]:
    """Create the sites in the order of the forward pass, where their tensors pass them."""

    def place(root: nn.Module, where: str, about: str) -> Site:
        site = Site(STREAM, about)
        put_at(root, where, site)
        return site

    yield "embed_out", place(module, f"output of {family.embed}", "the embedded tokens")
    width = module.config.hidden_size
    for index, layer in enumerate(layers):
        prefix = f"blocks.{index}"
        about = "the stream before the block"
        entering = Site(STREAM, about)
        block = layer.module
        yield f"{prefix}.block_in", entering
        yield f"{prefix}.mixer_in", place(block, layer.places["mixer_in"], "the mixer's input")
        for name, site in place_inside(layer):
            yield f"{prefix}.mixer.{name}", site
        about = "what the mixer adds to the stream"
        if family.sums:
            total = Site(STREAM, about)
            adding = Sum(total, block, list(family.sums.values()))
            for path in family.sums:
                put_at(block, f"output of {path}", adding)
            yield f"{prefix}.mixer_out", total
        else:
            yield f"{prefix}.mixer_out", place(block, layer.places["mixer_out"], about)
        if "mlp_in" in layer.places:
            yield f"{prefix}.mlp_in", place(block, layer.places["mlp_in"], "the MLP's input")
            about = "what the MLP adds to the stream"
            yield f"{prefix}.mlp_out", place(block, layer.places["mlp_out"], about)
        open_block(block, Boundary(index, entering, run, width, family.carries))
        yield f"{prefix}.block_out", place(module, f"output of {layer.path}", "the stream after it")
    yield "final_in", place(module, f"input of {family.norm}", "the stream after the last block")
    put_at(module, f"input of {family.head}", Reading(run))


def guess_family(module: nn.Module) -> Family:
    """Return a family with the layers of a model that is not in the table."""
    raise InvalidInput(f"no family {module.config.model_type!r}")
