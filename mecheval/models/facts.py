"""What a model costs: parameters, state and operations, counted from the built model."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from mecheval.models.language_model import LanguageModel

LENGTHS = (64, 256, 1024)


@dataclass(frozen=True)
class ModelFacts:
    """`state_bytes` is what must be kept to go on after so many tokens, in float32; operations are of the forward pass
    without the head, matrix products only."""

    parameters: int
    parameters_without_embedding: int
    state_bytes: dict[int, int]
    flops_per_token: dict[int, int]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def describe_model(model: LanguageModel, lengths: tuple[int, ...] = LENGTHS) -> ModelFacts:
    """State is counted where every mixer says what it keeps (`state_size`)."""
    lengths = tuple(length for length in lengths if length <= model.config.max_len)
    sizes = [getattr(block.mixer, "state_size", None) for block in model.blocks]
    known = [size for size in sizes if size is not None]
    total = sum(parameter.numel() for parameter in model.parameters())
    return ModelFacts(
        parameters=total,
        parameters_without_embedding=total - model.embedding.weight.numel(),
        state_bytes={n: 4 * sum(size(n) for size in known) for n in lengths} if len(known) == len(sizes) else {},
        flops_per_token={n: _flops(model, n) // n for n in lengths},
    )


def _flops(model: LanguageModel, time: int) -> int:
    tokens, last = torch.zeros(1, time, dtype=torch.long), torch.tensor([[time - 1]])
    with FlopCounterMode(display=False) as counter:
        model(tokens, last)
    return counter.get_total_flops() - 2 * model.embedding.weight.numel()
