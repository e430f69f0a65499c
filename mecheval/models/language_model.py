"""The backbone: embedding, pre-norm blocks of mixer and MLP, final norm, a head tied to the embedding (paper §4.1).

One forward pass serves training and intervention. A site always sees every position; where nobody looks behind the last
mixer, only the positions that are read go on from there, and where nobody looks into it, only they come out of it.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mecheval.core.errors import InvalidInput
from mecheval.models.architecture import Architecture
from mecheval.models.config import ModelConfig, build_architecture
from mecheval.models.layers import RMSNorm
from mecheval.models.mlp import MLP
from mecheval.models.ops.reads import Reads, gathered
from mecheval.models.ops.tied_embedding import few_logits, tied_embedding
from mecheval.models.registries import mixers
from mecheval.models.site import Site, sites

Stream = Float[Tensor, "batch time d_model"]
STANDARD = 0.02


class LanguageModel(nn.Module):
    """Logits of the next token. Its weights depend on (config, vocab_size, seed) alone."""

    def __init__(self, config: ModelConfig, vocab_size: int, seed: int = 0) -> None:
        super().__init__()
        architecture = build_architecture(config.architecture)
        self.config, self.vocab_size = config, vocab_size
        with torch.random.fork_rng(devices=[]):  # a stranger's mixer may draw from the global generator
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(vocab_size, config.d_model)
            self.positions = nn.Embedding(config.max_len, config.d_model) if architecture.positions else None
            self.embed_out = Site("batch time d_model", "the embedded tokens")
            self.blocks = nn.ModuleList([Block(config, architecture, layer) for layer in range(config.layers)])
            self.final_in = Site("batch time d_model", "the stream behind the last block")
            self.norm = nn.LayerNorm(config.d_model)
            init_weights(self, architecture)

    def forward(self, tokens: Int[Tensor, "batch time"], at: Reads | None = None) -> Float[Tensor, "batch reads vocab"]:
        """Logits where they are read: at every position, or at the positions `at` of each row."""
        self._check(tokens)
        x, head = tied_embedding(tokens, self.embedding.weight)
        if self.positions is not None:
            x = x + self.positions.weight[: tokens.shape[1]]
        return self._logits(0, self.embed_out(x), at, head)

    def resume(self, layer: int, x: Stream, at: Reads | None = None) -> Float[Tensor, "batch reads vocab"]:
        """The forward pass from the input of a block on; from behind the last one, if `layer` is how many there are."""
        return self._logits(layer, x, at, self.embedding.weight)

    def _logits(self, layer: int, x: Stream, at: Reads | None, head: Tensor) -> Float[Tensor, "batch reads vocab"]:
        early = None
        for block in self.blocks[layer:]:
            assert isinstance(block, Block)
            if at is not None and block is self.blocks[-1] and not (self.final_in.used or block.looked_behind):
                early = at
            x = block(x, early)
        x = self.final_in(x)
        if at is not None and early is None:
            x = gathered(x, at)
        x = self.norm(x)
        return few_logits(x, head) if at is not None and torch.is_grad_enabled() else F.linear(x, head)

    def _check(self, tokens: Tensor) -> None:
        if tokens.shape[1] > self.config.max_len:
            raise InvalidInput(f"length={tokens.shape[1]} must be at most max_len={self.config.max_len}")
        least, most = (int(end) for end in torch.aminmax(tokens)) if tokens.numel() else (0, 0)
        if not 0 <= least <= most < self.vocab_size:
            raise InvalidInput(f"tokens {least} … {most} must be from 0 and below vocab_size={self.vocab_size}")


class Block(nn.Module):
    """x ← x + mixer(norm(x));  x ← x + mlp(norm(x))"""

    def __init__(self, config: ModelConfig, architecture: Architecture, layer: int) -> None:
        super().__init__()
        d_model, stream = config.d_model, "batch time d_model"
        mixer = architecture.mixer(layer)
        self.block_in = Site(stream, "the stream before the block")
        self.norm1 = _norm(architecture, d_model)
        self.mixer_in = Site(stream, "the mixer's input, normalised")
        self.mixer = mixers.build(mixer, d_model=d_model, max_len=config.max_len)
        self.mixer_out = Site(stream, "what the mixer adds to the stream")
        self.mlp = MLP(d_model) if architecture.mlp else None
        if self.mlp is not None:
            self.norm2 = _norm(architecture, d_model)
            self.mlp_in = Site(stream, "the MLP's input, normalised")
            self.mlp_out = Site(stream, "what the MLP adds to the stream")
        self.block_out = Site(stream, "the stream behind the block")

    @property
    def looked_behind(self) -> bool:
        """Whether anybody looks behind the mixer."""
        behind = [self.block_out] + ([] if self.mlp is None else [self.mlp_in, self.mlp_out])
        return any(site.used for site in behind)

    @property
    def _reads_alone(self) -> bool:
        """Whether the mixer can give its output at some positions alone, and nobody wants to see the others."""
        return hasattr(self.mixer, "read") and not any(
            site.used for site in (self.mixer_out, *sites(self.mixer).values())
        )

    def forward(self, x: Stream, at: Reads | None = None) -> Float[Tensor, "batch reads d_model"]:
        x = self.block_in(x)
        normed = self.mixer_in(self.norm1(x))
        if at is not None and self._reads_alone:
            return self.behind_mixer(gathered(x, at) + self.mixer.read(normed, at))
        return self.behind_mixer(x + self.mixer_out(self.mixer(normed)), at)

    def behind_mixer(self, x: Stream, at: Reads | None = None) -> Float[Tensor, "batch reads d_model"]:
        """The rest of the block, every position by itself."""
        x = x if at is None else gathered(x, at)
        if self.mlp is not None:
            x = x + self.mlp_out(self.mlp(self.mlp_in(self.norm2(x))))
        return self.block_out(x)


@torch.no_grad()
def init_weights(model: LanguageModel, architecture: Architecture) -> None:
    """N(0, 0.02) for linear and embedding weights, zero biases, residual outputs 0.02/√(2·layers); Mamba keeps its own
    start, its output projection divided by √layers. As the authors' zoology did it, by the names out_proj and fc2."""
    config = model.config
    for name, module in model.named_modules():
        residual = name.endswith(("out_proj", "fc2"))
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=STANDARD * config.init_embedding)
        elif isinstance(module, nn.Linear) and architecture.start == "normal":
            depth = math.sqrt(2 * config.layers) if residual else 1.0
            nn.init.normal_(module.weight, std=STANDARD * config.init_linear / depth)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            module.weight *= config.init_linear / (math.sqrt(config.layers) if residual else 1.0)


def _norm(architecture: Architecture, d_model: int) -> nn.Module:
    return RMSNorm(d_model, eps=1e-5) if architecture.norm == "rms" else nn.LayerNorm(d_model)
