"""What a model costs: parameters, state and operations, counted from the built model."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from mecheval.models.build import Model, resumes
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


def describe_model(model: Model, lengths: tuple[int, ...] = LENGTHS) -> ModelFacts:
    """State is counted where every mixer says what it keeps (`state_size`), the embedding where it is an
    `nn.Embedding` with a row for each token."""
    blocks = list(model.blocks) if resumes(model) else []
    if resumes(model):
        lengths = tuple(length for length in lengths if length <= model.config.max_len)
    sizes = [getattr(block.mixer, "state_size", None) for block in blocks]
    known = [size for size in sizes if size is not None]
    total = sum(parameter.numel() for parameter in model.parameters())
    with torch.no_grad():
        vocab_size = model(torch.zeros(1, 1, dtype=torch.long)).shape[-1]
    tables = [part.weight for part in model.modules() if isinstance(part, nn.Embedding)]
    embedding = next((table.numel() for table in tables if len(table) == vocab_size), 0)
    return ModelFacts(
        parameters=total,
        parameters_without_embedding=total - embedding,
        state_bytes={n: 4 * sum(size(n) for size in known) for n in lengths} if known and known == sizes else {},
        flops_per_token={n: _flops(model, n) // n for n in lengths},
    )


@torch.no_grad()
def _flops(model: Model, time: int) -> int:
    # what runs in one kernel cannot be seen into; what is materialised to be looked at can
    inside = [name for name, site in sites(model).items() if site.materialised]
    with record(model, inside), sdpa_kernel(SDPBackend.MATH), _Operations() as counter:
        logits = model(torch.zeros(1, time, dtype=torch.long))
    return counter.total - counter.products.get(logits.data_ptr(), 0)  # the head is the product that gave the logits


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts 2 for each multiply-add of a matrix product, 1 for each number that a pointwise operation makes, and
    2.5 n log₂ n for a Fourier transform of n real numbers. `products` are those of which the result is still there, by
    its place in memory."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total, self.products = 0, dict[int, int]()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if product := flop_registry.get(func.overloadpacket):
            cost = product(*args, **(kwargs or {}), out_val=out)
            self.total += cost
            if isinstance(out, Tensor):
                self.products[out.data_ptr()] = cost
        elif func.overloadpacket in (torch.ops.aten._fft_r2c, torch.ops.aten._fft_c2r):
            real = args[0] if out.is_complex() else out
            self.total += round(2.5 * real.numel() * math.log2(max(real.shape[args[1][0]], 2)))
        elif torch.Tag.pointwise in func.tags and isinstance(out, Tensor):
            self.total += out.numel()
            self.products.pop(out.data_ptr(), None)
        return out
