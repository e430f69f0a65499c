"""Count the work of a train step while it runs, and measure the rate of a large matrix product.

Counted are matrix products (2 operations for each multiply-add), the products of attention (two
forward and four backward, of each the causal half), triangular solves, Fourier transforms
(2.5 n log₂ n) and the selective scan: for each token, channel and state 7 operations forward and
19 backward, or 4 and 10 where only one token is read; an exponential counts as one. Norms,
activations, gates, short convolutions and the optimiser are not counted.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from benchmarks.plain import Op, Ops, replace_ops
from mecheval.models.ops.causal_attention import causal_attention, flash_attention
from mecheval.models.ops.selective_scan import selective_read, selective_scan

GEMM = 1024
# dt·A, exp, decay·h + dt·x·B, the sum of C·h; backward all but the last again, and the gradients'
# products and sums
SCAN_FLOPS = 7 + 19
READ_FLOPS = 4 + 10


def gemm() -> Callable[[], Tensor]:
    """Return a large matrix product in float32, the fastest computation on one core."""
    a = torch.randn(GEMM, GEMM, generator=torch.Generator().manual_seed(0))
    return lambda: a @ a


def gemm_rate(milliseconds: float) -> float:
    """Return the GFLOP/s of that product."""
    return 2 * GEMM**3 / milliseconds / 1e6


def count_flops(step: Callable[[], object]) -> int:
    """Count the operations of a step that runs forward and backward once."""
    counter = _Operations()  # type: ignore[no-untyped-call]
    ops: Ops = {
        selective_scan: counter.count_cells(selective_scan, SCAN_FLOPS),
        selective_read: counter.count_cells(selective_read, READ_FLOPS),
        causal_attention: flash_attention,  # has an argument that says whether it is causal
    }
    with counter, replace_ops(ops):
        step()
    return counter.total


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    total = 0

    def count_cells(self, op: Op, each: int) -> Op:
        """Wrap a compiled op, which torch cannot count: `each` operations per cell of its state."""

        def counting(
            x: Tensor, dt: Tensor, A: Tensor, *others: Tensor, backend: str = "auto"
        ) -> Tensor:
            self.total += each * x.numel() * A.shape[1]
            return op(x, dt, A, *others, backend=backend)

        return counting

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        op, aten = func.overloadpacket, torch.ops.aten
        if product := flop_registry.get(op):
            self.total += product(*args, **(kwargs or {}), out_val=out)
        elif op in (aten._fft_r2c, aten._fft_c2r):
            real = args[0] if out.is_complex() else out
            self.total += round(2.5 * real.numel() * math.log2(max(real.shape[args[1][0]], 2)))
        elif op is aten.linalg_solve_triangular:
            self.total += args[1].numel() * args[0].shape[-1]
        elif op is aten._scaled_dot_product_flash_attention_for_cpu:
            self.total += 2 * _scores(args[0], args[1], len(args) > 4 and args[4])
        elif op is aten._scaled_dot_product_flash_attention_for_cpu_backward:
            # it computes the weights once more, a fifth product that is not counted
            self.total += 4 * _scores(args[1], args[2], args[7])
        return out


def _scores(q: Tensor, k: Tensor, causal: bool) -> int:
    """Return the operations of one product of all queries with all keys."""
    return 2 * q.numel() * k.shape[2] // (2 if causal else 1)
