"""Count the work of a train step while it runs, and measure the rate of a large matrix product.

Counted are matrix products (2 operations for each multiply-add), the products of attention (two
forward and four backward, of each the causal half), triangular solves, Fourier transforms
(2.5 n log₂ n) and the selective scan: for each token, channel and state 7 operations forward and
19 backward, or 4 and 10 where only one token is read; an exponential counts as one. Of the linear
recurrence, each number of the memory counts with what the mixer uses: writing, reading, decay and
erasing. Not counted are the reads of the recurrence at one token, which compute vectors alone, the
linear scan, norms, activations, gates, short convolutions and the optimiser.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.plain import Op, Ops, replace_ops
from mecheval.models.cost import FlopCounter
from mecheval.models.ops.causal_attention import causal_attention, flash_attention
from mecheval.models.ops.recurrence import Writes, recurrence
from mecheval.models.ops.selective_scan import selective_read, selective_scan

GEMM = 1024
# dt·A, exp, decay·h + dt·x·B, the sum of C·h; backward all but the last again, and the gradients'
# products and sums
SCAN_FLOPS = 7 + 19
READ_FLOPS = 4 + 10
# of each number of the memory S; the backward pass computes S again, except what is read
MEMORY_WRITE_FLOPS = 2 + 2 + 4  # S + k vᵀ; the gradients of k and v
MEMORY_READ_FLOPS = 2 + 4  # Sᵀ q; the gradients of q and S
DECAY_FLOPS = 1 + 1 + 3  # w ∘ S; the gradients of w and S
ERASE_FLOPS = 4 + 4 + 8  # b (aᵀ S) as two products; the gradients of both


def gemm() -> Callable[[], Tensor]:
    """Return a large matrix product in float32, the fastest computation on one core."""
    a = torch.randn(GEMM, GEMM, generator=torch.Generator().manual_seed(0))
    return lambda: a @ a


def gemm_rate(milliseconds: float) -> float:
    """Return the GFLOP/s of that product."""
    return 2 * GEMM**3 / milliseconds / 1e6


def count_flops(step: Callable[[], object]) -> int:
    """Count the operations of a step that runs forward and backward once."""
    counter = _Operations()
    ops: Ops = {
        selective_scan: counter.count_cells(selective_scan, SCAN_FLOPS),
        selective_read: counter.count_cells(selective_read, READ_FLOPS),
        recurrence: counter.count_memory,
        causal_attention: _attention,
    }
    with counter, replace_ops(ops):
        step()
    return counter.total


class _Operations(FlopCounter):  # type: ignore[no-untyped-call]
    def count_cells(self, op: Op, each: int) -> Op:
        """Wrap a compiled op, which torch cannot count: `each` operations per cell of its state."""

        def counting(
            x: Tensor, dt: Tensor, A: Tensor, *others: Tensor, backend: str = "auto"
        ) -> Tensor:
            self.total += each * x.numel() * A.shape[1]
            return op(x, dt, A, *others, backend=backend)

        return counting

    def count_memory(self, q: Tensor, writes: Writes) -> Tensor:
        each_write = MEMORY_WRITE_FLOPS
        each_write += 0 if writes.log_w is None else DECAY_FLOPS
        each_write += 0 if writes.a is None else ERASE_FLOPS
        rows = MEMORY_READ_FLOPS * q.numel() + each_write * writes.k.numel()
        self.total += rows * writes.v.shape[3]
        return recurrence(q, writes)

    def count_other(self, func: Any, args: tuple[Any, ...], out: Any) -> int:
        op, aten = func.overloadpacket, torch.ops.aten
        if op is aten.linalg_solve_triangular:
            return args[1].numel() * args[0].shape[-1]
        if op is aten._scaled_dot_product_flash_attention_for_cpu:
            return 2 * _scores(args[0], args[1], len(args) > 4 and args[4])
        if op is aten._scaled_dot_product_flash_attention_for_cpu_backward:
            # it computes the weights once more, a fifth product that is not counted
            return 4 * _scores(args[1], args[2], args[7])
        return 0


def _attention(q: Tensor, k: Tensor, v: Tensor, window: int = 0) -> Tensor:
    """Call torch's kernel, which can be counted: an argument says whether it is causal."""
    assert not window, "no step that is counted has a window"
    return flash_attention(q, k, v)


def _scores(q: Tensor, k: Tensor, causal: bool) -> int:
    """Return the operations of one product of all queries with all keys."""
    return 2 * q.numel() * k.shape[2] // (2 if causal else 1)
