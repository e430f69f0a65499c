"""The language model: embedding, pre-norm blocks, final norm, tied head (paper §4.1).

One forward pass serves training and intervention, with one exception. In the last layer, where no
site is recorded or edited, `mixer.read` computes only the positions that are read; it spans the
sites inside the mixer, and `check_mixer` proves it equal to `forward`. A site in use sees every
position.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mecheval.core.errors import InvalidInput
from mecheval.models.architecture import Architecture, Norm
from mecheval.models.config import ModelConfig, build_architecture
from mecheval.models.layer import add_convolutions, build_layer
from mecheval.models.layers import MLP, ResidualConv, RMSNorm
from mecheval.models.mixers import Output, Stream
from mecheval.models.ops import Reads, gather_reads
from mecheval.models.ops.tied_embedding import few_logits, tied_embedding
from mecheval.models.short_convs import AFTER_MIXER
from mecheval.models.site import Site, sites

Tokens = Int[Tensor, "batch time"]
Logits = Float[Tensor, "batch reads vocab"]
STANDARD = 0.02


class LanguageModel(nn.Module):
    """A model from tokens to logits; (config, vocab_size, seed) determine its weights.

    Parameters
    ----------
    config
        The model's configuration.
    vocab_size
        Number of tokens.
    seed
        Seed of the weights.

    Examples
    --------
    >>> import torch
    >>> from mecheval import LanguageModel, ModelConfig
    >>> model = LanguageModel(ModelConfig("attention", d_model=8), vocab_size=12)
    >>> tokens = torch.randint(12, (2, 5))
    >>> model(tokens).shape
    torch.Size([2, 5, 12])
    >>> model(tokens, at=torch.tensor([[4], [4]])).shape  # only where it is read
    torch.Size([2, 1, 12])
    """

    def __init__(self, config: ModelConfig, vocab_size: int, seed: int = 0) -> None:
        super().__init__()
        architecture = build_architecture(config.architecture)
        d_model, layers = config.d_model, range(config.layers)
        self.config, self.vocab_size = config, vocab_size
        self.kinds = architecture.kinds(config.layers)  # what each layer is, if they differ
        with torch.random.fork_rng(devices=[]):  # mixers may draw from the global generator
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(vocab_size, d_model)
            positions = nn.Embedding(config.max_len, d_model) if architecture.positions else None
            self.positions = positions
            self.embed_out = Site("batch time d_model", "the embedded tokens")
            self.blocks = nn.ModuleList([Block(config, architecture, layer) for layer in layers])
            self.final_in = Site("batch time d_model", "the stream after the last block")
            self.norm = _norm(architecture.final_norm, d_model)
            init_weights(self)

    def forward(self, tokens: Tokens, at: Reads | None = None) -> Logits:
        """Return logits at every position, or at the positions `at` of each row."""
        self._check(tokens)
        x, head = tied_embedding(tokens, self.embedding.weight)
        if self.positions is not None:
            x = x + self.positions.weight[: tokens.shape[1]]
        return self._logits(0, self.embed_out(x), at, head)

    @property
    def depth(self) -> int:
        """The number of blocks."""
        return len(self.blocks)

    def resume(self, layer: int, x: Stream, at: Reads | None = None) -> Logits:
        """Continue the forward pass from the input of a block.

        With `layer` equal to the number of blocks, continue after the last one.
        """
        return self._logits(layer, x, at, self.embedding.weight)

    def _logits(self, layer: int, x: Stream, at: Reads | None, head: Tensor) -> Logits:
        early = None
        for block in self.blocks[layer:]:
            assert isinstance(block, Block)
            if block is self.blocks[-1] and not (self.final_in.used or block.needs_all_after_mixer):
                early = at
            x = block(x, early)
        x = self.final_in(x)
        if at is not None and early is None:
            x = gather_reads(x, at)
        x = self.norm(x)
        if at is not None and torch.is_grad_enabled():
            return few_logits(x, head)
        return F.linear(x, head)

    def _check(self, tokens: Tensor) -> None:
        max_len, vocab_size = self.config.max_len, self.vocab_size
        if tokens.shape[1] > max_len:
            raise InvalidInput(f"length={tokens.shape[1]} must be at most max_len={max_len}")
        least, most = (int(end) for end in torch.aminmax(tokens)) if tokens.numel() else (0, 0)
        if not 0 <= least <= most < vocab_size:
            limits = f"must be from 0 and below vocab_size={vocab_size}"
            raise InvalidInput(f"tokens {least} … {most} {limits}")


class Block(nn.Module):
    """x ← x + mixer(norm(x));  x ← x + mlp(norm(x)), with short convolutions where asked."""

    def __init__(self, config: ModelConfig, architecture: Architecture, layer: int) -> None:
        super().__init__()
        d_model, stream = config.d_model, "batch time d_model"
        places, taps = architecture.sconv, architecture.sconv_taps

        def sconv(place: str) -> nn.Module:
            return ResidualConv(d_model, taps) if place in places else nn.Identity()

        self.block_in = Site(stream, "the stream before the block")
        self.norm1 = _norm(architecture.norm, d_model)
        self.sconv_A = sconv("A")
        self.mixer_in = Site(stream, "the mixer's input, normalised")
        self.mixer = build_layer(architecture.layer(layer), d_model, config.max_len)
        convolved = add_convolutions(
            self.mixer, [place for place in "qkv" if place in places], taps
        )
        self.sconv_O = sconv("O")
        self.mixer_out = Site(stream, "what the mixer adds to the stream")
        self.mlp = MLP(d_model, taps=taps if "D" in places else 0) if architecture.mlp else None
        if self.mlp is not None:
            self.norm2 = _norm(architecture.norm, d_model)
            self.sconv_C = sconv("C")
            self.mlp_in = Site(stream, "the MLP's input, normalised")
            self.sconv_M = sconv("M")
            self.mlp_out = Site(stream, "what the MLP adds to the stream")
        self.block_out = Site(stream, "the stream after the block")
        # what follows the mixer treats every position separately, unless a convolution stands there
        self.mixes_after_mixer = any(place in places for place in AFTER_MIXER)
        # `read` computes single positions, of which a convolution needs the ones before
        self.reads = hasattr(self.mixer, "read") and not convolved and "O" not in places

    @property
    def needs_all_after_mixer(self) -> bool:
        """Tell whether every position is needed after the mixer: a site there has edits, or so."""
        after = [self.block_out] + ([] if self.mlp is None else [self.mlp_in, self.mlp_out])
        return self.mixes_after_mixer or any(site.used for site in after)

    @property
    def _may_read(self) -> bool:
        """Tell whether `mixer.read` can be used and no site that it would skip has edits."""
        skipped = (self.mixer_out, *sites(self.mixer).values())
        return self.reads and not any(site.used for site in skipped)

    def forward(self, x: Stream, at: Reads | None = None) -> Output:
        """Return the stream after the block, at every position or at the positions `at`."""
        x = self.block_in(x)
        normed = self.mixer_in(self.sconv_A(self.norm1(x)))
        if at is not None and self._may_read:
            return self.after_mixer(gather_reads(x, at) + self.mixer.read(normed, at))
        return self.after_mixer(x + self.mixer_out(self.sconv_O(self.mixer(normed))), at)

    def after_mixer(self, x: Stream, at: Reads | None = None) -> Output:
        """Compute the rest of the block."""
        x = x if at is None else gather_reads(x, at)
        if self.mlp is not None:
            y = self.mlp(self.mlp_in(self.sconv_C(self.norm2(x))))
            x = x + self.mlp_out(self.sconv_M(y))
        return self.block_out(x)


@torch.no_grad()
def init_weights(model: LanguageModel) -> None:
    """Initialise the weights as the authors' zoology does, by the names out_proj and fc2.

    Linear and embedding weights are N(0, 0.02), biases zero, residual outputs 0.02/√(2·layers).
    Mamba initialises itself; its output projection is divided by √layers.
    """
    config = model.config
    drawn = [part for part in model.modules() if getattr(part, "start", "normal") == "own"]
    own = {id(part) for mixer in drawn for part in mixer.modules()}
    for name, module in model.named_modules():
        residual = name.endswith(("out_proj", "fc2"))
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=STANDARD * config.init_embedding)
        elif isinstance(module, nn.Linear) and id(module) not in own:
            depth = math.sqrt(2 * config.layers) if residual else 1.0
            nn.init.normal_(module.weight, std=STANDARD * config.init_linear / depth)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            module.weight *= config.init_linear / (math.sqrt(config.layers) if residual else 1.0)


def _norm(name: Norm, d_model: int) -> nn.Module:
    return RMSNorm(d_model, eps=1e-5) if name == "rms" else nn.LayerNorm(d_model)
