"""What a model costs: parameters, state and operations, counted from the built model."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from mecheval.models.language_model import LanguageModel
from mecheval.models.site import record, sites

LENGTHS = (64, 256, 1024)


@dataclass(frozen=True)
class ModelFacts:
    """`state_bytes` is what must be kept to go on after so many tokens, in float32; operations are of the
    forward pass, without the head."""

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


@torch.no_grad()
def _flops(model: LanguageModel, time: int) -> int:
    # what runs in one kernel cannot be seen into; what is materialised to be looked at can
    inside = [name for name, site in sites(model).items() if site.materialised]
    with record(model, inside), _Operations() as counter:  # type: ignore[no-untyped-call]
        model(torch.zeros(1, time, dtype=torch.long))
    return counter.total - 2 * model.embedding.weight.numel() * time


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts 2 for each multiply-add of a matrix product, 1 for each number that a pointwise operation makes, and
    2.5 n log₂ n for a Fourier transform of n real numbers."""

    total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if product := flop_registry.get(func.overloadpacket):
            self.total += product(*args, **(kwargs or {}), out_val=out)
        elif func.overloadpacket in (torch.ops.aten._fft_r2c, torch.ops.aten._fft_c2r):
            real = args[0] if out.is_complex() else out
            self.total += round(2.5 * real.numel() * math.log2(max(real.shape[args[1][0]], 2)))
        elif torch.Tag.pointwise in func.tags and isinstance(out, Tensor):
            self.total += out.numel()
        return out
