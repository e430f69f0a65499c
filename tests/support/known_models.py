"""Models whose mechanism is known because their weights are set by hand, and random models.

Tokens are one-hot. The stream has slots, each as wide as the vocabulary: `TOKEN` for the token
itself, further ones for tokens that were moved. A second copy has the other sign, so that the mean
is 0 and a layer norm only scales. Weights are so large that softmax, silu and sigmoid are steps.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from mecheval.models.config import ModelConfig
from mecheval.models.language_model import LanguageModel
from mecheval.tasks.documents import Documents
from mecheval.tasks.recall import Recall

TASK = Recall(pairs=4, vocab=16)
V, T = TASK.vocab_size, TASK.max_len
TOKEN, MOVED, MOVED_TWICE = (slice(i * V, (i + 1) * V) for i in range(3))
POSITION = slice(2 * V, 2 * V + T)
EVEN = torch.arange(V) % 2 == 0
SHARP, LOUD = 50.0, 100.0  # in front of a step; for an answer that drowns everything else


def induction(layers: int = 2, stores: int = 0, finds: int = 1) -> LanguageModel:
    """Build attention that stores each key at its value and finds the query's key later."""
    model = _attention(layers)
    _copy_back(model, stores, by=1, into=MOVED)
    q, k, v = model.blocks[finds].mixer.qkv_proj.weight.chunk(3)
    q[TOKEN, TOKEN] = SHARP * torch.eye(V)
    k[TOKEN, MOVED] = torch.eye(V)
    v[TOKEN, TOKEN] = torch.eye(V)
    _write(model.blocks[finds].mixer.out_proj.weight, TOKEN, TOKEN, LOUD)
    return model


def copies_the_last_value() -> LanguageModel:
    """Build attention that answers with the token two positions back."""
    model = _attention(layers=2)
    _copy_back(model, 0, by=2, into=TOKEN, factor=LOUD)
    return model


def memoriser() -> LanguageModel:
    """Build attention whose first MLP has the answer to every query of `Known`."""
    model = _attention(layers=2)
    half = TASK.vocab // 2
    mlp = model.blocks[0].mlp
    mlp.fc1.weight[TOKEN, TOKEN] = SHARP * torch.eye(V)
    _write(mlp.fc2.weight, TOKEN, TOKEN, LOUD * torch.eye(V).roll(half, dims=0))
    return model


def uniform() -> LanguageModel:
    model = _attention(layers=2)
    model.embedding.weight.zero_()
    return model


def direct_by_delta_rule(layer: int, layers: int = 2) -> LanguageModel:
    """Build DeltaNet that holds every token at the one before it, by a convolution on keys."""
    model = _delta_net(layers)
    mixer = model.blocks[layer].mixer
    _read_tokens(mixer)
    mixer.k_proj.weight[TOKEN, TOKEN] = SHARP * torch.eye(V)
    _tap(mixer.k_conv, back=1)
    return model


def half_induction_half_direct(stored: Tensor = EVEN) -> LanguageModel:
    """Build DeltaNet that finds some tokens where layer 0 moved them, and the others in place."""
    model = _delta_net()
    moves, reads = (block.mixer for block in model.blocks)
    for projection in (
        moves.q_proj,
        moves.k_proj,
    ):  # always the same key, so that the memory is its last value
        projection.weight[0, TOKEN] = SHARP
    moves.v_proj.weight[TOKEN, TOKEN] = SHARP * torch.eye(V)
    _tap(moves.q_conv), _tap(moves.k_conv), _tap(moves.v_conv, back=1)
    moves.b_proj.weight[:, TOKEN] = SHARP
    _write(moves.o_proj.weight, MOVED, TOKEN, 1.0)
    _read_tokens(reads)
    even, odd = stored.float().diag(), (~stored).float().diag()
    reads.k_proj.weight[TOKEN, TOKEN] = SHARP * odd
    reads.k_proj.weight[MOVED, MOVED] = SHARP * even
    reads.q_proj.weight[MOVED, TOKEN] = SHARP * even
    reads.q_proj.weight[TOKEN, TOKEN] = SHARP * odd
    _tap(reads.k_conv, back=1, channels=TOKEN)
    _tap(reads.k_conv, back=0, channels=MOVED)
    return model


def direct_in_two_layers(first: Tensor = EVEN) -> LanguageModel:
    """Build DeltaNet whose layer 0 answers the queries of some keys, and layer 1 the others."""
    model = _delta_net()
    keys = torch.zeros(V, dtype=torch.bool)
    keys[list(TASK.symbols("key"))] = True
    for block, tokens in zip(model.blocks, (first & keys, ~first & keys), strict=True):
        _read_tokens(block.mixer)
        only = SHARP * tokens.double().diag()
        block.mixer.q_proj.weight[TOKEN, TOKEN] = only
        block.mixer.k_proj.weight[TOKEN, TOKEN] = only
        _tap(block.mixer.k_conv, back=1)
    return model


def induction_in_a_window(pairs: int = 1) -> LanguageModel:
    """Build the induction of `induction`, whose second head sees only the last few pairs."""
    model = induction()
    q, k, _ = model.blocks[1].mixer.qkv_proj.weight.chunk(3)
    beyond = torch.arange(T) < T - 2 - 2 * pairs
    q[POSITION.start, TOKEN] = SHARP
    k[POSITION.start, POSITION] = -SHARP * beyond.double()
    return model


def half_learned(sure: float) -> LanguageModel:
    """Build the induction of `induction` with logits so flat that the answer is hardly likelier."""
    model = induction()
    model.norm.weight[:] = sure
    return model


def by_short_convolution(role: str) -> LanguageModel:
    """Build Based whose convolution moves the key to its value, or both to the next key."""
    model = _blank(f"based:kernel=3,feature_dim={V}", slots=3)
    model.embedding.weight[:] = _mirrored(
        torch.eye(V).repeat(1, 3)
    )  # a convolution moves within its channels
    moves, reads = (block.mixer for block in model.blocks)
    moves.projection.bias[:] = 10.0
    half = 3 * V
    for side in (0, half):
        _tap(moves.conv, back=1, channels=slice(side + MOVED.start, side + MOVED.stop))
        _tap(moves.conv, back=2, channels=slice(side + MOVED_TWICE.start, side + MOVED_TWICE.stop))
    key, value = {"value": (MOVED, TOKEN), "next_key": (MOVED_TWICE, MOVED)}[role]
    reads.q_proj.weight[:, TOKEN] = SHARP * torch.eye(V)
    reads.k_proj.weight[:, key] = SHARP * torch.eye(V)
    reads.k_proj.weight[:, TOKEN] = -SHARP * torch.eye(V)  # the token itself is in every slot
    reads.v_proj.weight[TOKEN, value] = torch.eye(V)
    if value is not TOKEN:
        reads.v_proj.weight[TOKEN, TOKEN] = -torch.eye(V)
    _write(reads.o_proj.weight, TOKEN, TOKEN, LOUD)
    return model


def direct_by_state_space(layer: int, role: str) -> LanguageModel:
    """Build Mamba whose convolution joins key and value, at the value or at the next key.

    The state adds up value times key, and the query reads it.
    """
    model = _blank(f"mamba:d_state={V}", slots=1)
    mixer = model.blocks[layer].mixer
    asked, written, key = (slice(i * V, (i + 1) * V) for i in range(3))  # channels
    x, z = mixer.in_proj.weight.chunk(2)
    for channels, back in ((asked, 0), (written, 0), (key, 1)):
        x[channels, TOKEN] = SHARP * torch.eye(V)
        later = role == "next_key" and channels is not asked
        _tap(mixer.conv, back=back + later, channels=channels)
    z[written, TOKEN] = SHARP  # every token opens the gate
    _, B, C = mixer.x_proj.weight.split([mixer.dt_rank, V, V])
    B[:, key], C[:, asked] = torch.eye(V), torch.eye(V)
    mixer.dt_proj.bias[:] = 1.0
    mixer.A_log[:] = -40.0  # forgets nothing
    _write(mixer.out_proj.weight, TOKEN, written, 1.0)
    return model


def random(
    architecture: str,
    task: Recall = TASK,
    *,
    layers: int = 2,
    d_model: int = 8,
    linear: float = 10.0,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> LanguageModel:
    """Build a model with weights so large that every token matters to every later one."""
    # Mamba starts with large weights
    linear = 2.0 if architecture.startswith("mamba") else linear
    config = ModelConfig(
        architecture=architecture,
        d_model=d_model,
        layers=layers,
        max_len=max(task.max_len, 8),
        init_linear=linear,
        init_embedding=50.0,
    )
    return LanguageModel(config, task.vocab_size, seed).to(dtype)


@dataclass(frozen=True, kw_only=True)
class Known(Recall):
    """Recall in which a key has the same value in every document."""

    def documents(self, seed: int, split: str, start: int, stop: int) -> Documents:
        docs = super().documents(seed, split, start, stop)
        tokens, half = docs.tokens.copy(), self.vocab // 2
        values = tokens >= self.symbols("value").start
        values[:, 0] = False
        rows, places = values.nonzero()
        tokens[rows, places] = tokens[rows, places - 1] + half
        docs = docs.with_tokens(tokens)
        return replace(docs, answers=docs.at("value")[:, None])


@torch.no_grad()
def _blank(architecture: str, slots: int, positions: int = 0, layers: int = 2) -> LanguageModel:
    """Build one-hot tokens and blocks that add nothing; in float64, for norms magnify errors."""
    half = slots * V + positions
    config = ModelConfig(architecture=architecture, d_model=2 * half, layers=layers, max_len=T)
    model = LanguageModel(config, V).double()
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv1d):
            for weight in module.parameters():
                weight.zero_()
    model.requires_grad_(False)
    model.embedding.weight[:] = _mirrored(torch.eye(V, half))
    model.norm.weight[:] = 4.0  # surer of what it says
    if model.positions is not None:
        model.positions.weight[:] = _mirrored(torch.eye(T, half).roll(POSITION.start, dims=1))
    return model


def _attention(layers: int) -> LanguageModel:
    return _blank("attention", slots=2, positions=T, layers=layers)


def _copy_back(model: LanguageModel, layer: int, by: int, into: slice, factor: float = 1.0) -> None:
    """Set a head to copy the token so many positions back."""
    mixer = model.blocks[layer].mixer
    q, k, v = mixer.qkv_proj.weight.chunk(3)
    q[POSITION, POSITION] = SHARP * torch.eye(T).roll(-by, dims=0)
    k[POSITION, POSITION] = torch.eye(T)
    v[TOKEN, TOKEN] = torch.eye(V)
    _write(mixer.out_proj.weight, into, TOKEN, factor)


def _delta_net(layers: int = 2) -> LanguageModel:
    return _blank("delta_net", slots=2, layers=layers)


def _read_tokens(mixer: nn.Module) -> None:
    """Set a memory to ask for the token, answer with a token, and replace what it held."""
    mixer.q_proj.weight[TOKEN, TOKEN] = SHARP * torch.eye(V)
    mixer.v_proj.weight[TOKEN, TOKEN] = SHARP * torch.eye(V)
    mixer.b_proj.weight[:, TOKEN] = SHARP
    _tap(mixer.q_conv), _tap(mixer.v_conv)
    _write(mixer.o_proj.weight, TOKEN, TOKEN, LOUD)


def _tap(conv: nn.Conv1d, back: int = 0, channels: slice = slice(None)) -> None:
    """Set the convolution to take the token so many positions back."""
    conv.weight[channels] = 0.0
    conv.weight[channels, 0, conv.kernel_size[0] - 1 - back] = 1.0


def _write(weight: Tensor, slot: slice, source: slice, what: float | Tensor) -> None:
    """Write channels into a slot of the stream, and with the other sign into its mirror."""
    half = len(weight) // 2
    block = what * torch.eye(V) if isinstance(what, float) else what
    weight[slot, source] = block
    weight[slot.start + half : slot.stop + half, source] = -block


def _mirrored(x: Tensor) -> Tensor:
    return torch.cat([x, -x], dim=1)
