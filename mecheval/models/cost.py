"""The cost of a model: parameters, state and operations, counted on the model itself."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from mecheval.models.build import Model, is_ours
from mecheval.models.site import record, sites

LENGTHS = (64, 256, 1024)


@dataclass(frozen=True)
class ModelFacts:
    """Sizes and operations of a model, the latter two by the number of tokens.

    `state_bytes` is the memory needed to continue after so many tokens, in float32.
    `flops_per_token` counts the forward pass without the head.
    """

    parameters: int
    parameters_without_embedding: int
    state_bytes: dict[int, int]
    flops_per_token: dict[int, int]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def describe_model(model: Model, lengths: tuple[int, ...] = LENGTHS) -> ModelFacts:
    """Count parameters, state and operations of a model.

    The state is counted if every mixer has a `state_size`, and the embedding if it is an
    `nn.Embedding` with a row for each token.
    """
    blocks = list(model.blocks) if is_ours(model) else []
    if is_ours(model):
        lengths = tuple(length for length in lengths if length <= model.config.max_len)
    sizes = [getattr(block.mixer, "state_size", None) for block in blocks]
    known = [size for size in sizes if size is not None]
    state_bytes = {}
    if known and known == sizes:
        state_bytes = {time: 4 * sum(size(time) for size in known) for time in lengths}
    total = sum(parameter.numel() for parameter in model.parameters())
    with torch.no_grad():
        vocab_size = model(torch.zeros(1, 1, dtype=torch.long)).shape[-1]
    tables = [part.weight for part in model.modules() if isinstance(part, nn.Embedding)]
    embedding = next((table.numel() for table in tables if len(table) == vocab_size), 0)
    return ModelFacts(
        parameters=total,
        parameters_without_embedding=total - embedding,
        state_bytes=state_bytes,
        flops_per_token={time: _count_flops(model, time) // time for time in lengths},
    )


@torch.no_grad()
def _count_flops(model: Model, time: int) -> int:
    # the counter cannot see inside a compiled kernel; recording these sites avoids the kernels
    inside = [name for name, site in sites(model).items() if site.materialised]
    with record(model, inside), sdpa_kernel(SDPBackend.MATH), FlopCounter() as counter:
        logits = model(torch.zeros(1, time, dtype=torch.long))
    # the head is the matrix product that returned the logits
    return counter.total - counter.products.get(logits.data_ptr(), 0)


class FlopCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations of everything torch computes.

    A multiply-add of a matrix product counts 2, each number from a pointwise operation 1, and a
    Fourier transform of n real numbers 2.5 n log₂ n. `products` holds the cost of each matrix
    product whose result is still in memory, by its address.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total, self.products = 0, dict[int, int]()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
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
        else:
            self.total += self.count_other(func, args, out)
        return out

    def count_other(self, func: Any, args: tuple[Any, ...], out: Any) -> int:
        """Count what is neither a product nor a Fourier transform."""
        if torch.Tag.pointwise not in func.tags or not isinstance(out, Tensor):
            return 0
        self.products.pop(out.data_ptr(), None)
        return out.numel()
