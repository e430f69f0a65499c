"""The selective scan and its gradients; `selective_scan_ref` is the same in plain torch.

Channels are the lanes of the vector unit, WIDTH of them a block; the last block is padded with
zeros. Each kernel is one function, and an inner loop touches only two or three scratch arrays whose
last axes are constants. LLVM then knows what cannot overlap; with unknown strides it keeps the loop
scalar, eight times slower. So there is a pair of kernels for every WIDTH, and the loops that fill
the scratch arrays are written out: with a width that is not a constant they take twice the time.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import njit

from mecheval.models.ops.kernels import FAST, GROUP, four
from mecheval.models.ops.kernels.exponential import LN2, decay

WIDTHS = 32, 64, 128

# contents of the scratch arrays: for each channel and state …
A_, H, GH, GA = range(4)
# … for each channel at one time (U is dt · x, GU its gradient, GR that of dt through the decay) …
DT, U, Y = range(3)
G, GU, GR = range(2, 5)
# … and for each channel, time and state of a group
DECAY, DECAYED = range(2)


def block_width(channels: int) -> int:
    """Return the widest block without more padding than a narrower one; each has a fixed cost."""
    return min(WIDTHS, key=lambda width: (-channels % width, -width))


@njit
def limits(A):
    """Return 0, NaN, the least and the largest rate, and the exponent from which exp overflows."""
    number = A.dtype.type
    return number(0), number(np.nan), A.min(), A.max(), number(LN2 * np.finfo(A.dtype).maxexp)


@cache
def kernels(WIDTH: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """Compile `forward` and `backward` for blocks of this width."""

    @njit(cache=True, fastmath=FAST)
    def forward(x, dt, A, B, C, D, y):
        """Write `y`."""
        batch, time, d_inner = x.shape
        d_state, blocks = A.shape[1], -(-d_inner // WIDTH)
        zero, nan, low, high, most = limits(A)
        cell = np.zeros((blocks, d_state, 2, WIDTH), x.dtype)
        row = np.zeros((blocks, 3, WIDTH), x.dtype)
        for c in range(d_inner):
            for n in range(d_state):
                cell[c // WIDTH, n, A_, c % WIDTH] = A[c, n]
        for b in range(batch):
            cell[:, :, H] = zero
            for t in range(time):
                for block in range(blocks):
                    first = block * WIDTH
                    width = min(WIDTH, d_inner - first)
                    for i in range(width):
                        step = dt[b, t, first + i]
                        # NaN for a state that would overflow, where `decay` is undefined
                        row[block, DT, i] = step if max(step * low, step * high) < most else nan
                        row[block, U, i] = dt[b, t, first + i] * x[b, t, first + i]
                        row[block, Y, i] = D[first + i] * x[b, t, first + i]
                    for n in range(d_state):
                        b_n, c_n = B[b, t, n], C[b, t, n]
                        for i in range(WIDTH):
                            h = decay(row[block, DT, i] * cell[block, n, A_, i])
                            h = h * cell[block, n, H, i] + row[block, U, i] * b_n
                            cell[block, n, H, i] = h
                            row[block, Y, i] += c_n * h
                    for i in range(width):
                        y[b, t, first + i] = row[block, Y, i]

    @njit(cache=True, fastmath=FAST)
    def backward(x, dt, A, B, C, D, g, gx, gdt, gA, gB, gC, gD):
        """Add to `gB`, `gC` and `gD` and write the other gradients, given `g`, the gradient of y.

        The states are computed again, a block of channels and a GROUP of states of one sequence at
        a time, and then swept from the end with gh_t = exp(dt_{t+1} A) gh_{t+1} + C_t g_t. A group
        shares what it reads of the channels.
        """
        batch, time, d_inner = x.shape
        d_state, blocks = A.shape[1], -(-d_inner // WIDTH)
        zero, nan, low, high, most = limits(A)
        tape, row = np.empty((time, 2, GROUP, WIDTH), x.dtype), np.zeros((time, 5, WIDTH), x.dtype)
        cells = np.zeros((blocks, d_state // GROUP, 4, GROUP, WIDTH), x.dtype)
        for c in range(d_inner):
            for n in range(d_state):
                cells[c // WIDTH, n // GROUP, A_, n % GROUP, c % WIDTH] = A[c, n]
        for b in range(batch):
            cells[:, :, H : GH + 1] = zero
            for block in range(blocks):
                first = block * WIDTH
                width = min(WIDTH, d_inner - first)
                row[:] = zero  # the sums, and the padding of the last block
                for t in range(time):
                    for i in range(width):
                        step = dt[b, t, first + i]
                        row[t, DT, i] = step if max(step * low, step * high) < most else nan
                        row[t, U, i] = dt[b, t, first + i] * x[b, t, first + i]
                        row[t, G, i] = g[b, t, first + i]
                for group in range(d_state // GROUP):
                    cell, n = cells[block, group], GROUP * group
                    for t in range(time):
                        b0, b1, b2, b3 = four(B[b, t], n)
                        total0, total1, total2, total3 = zero, zero, zero, zero
                        for i in range(WIDTH):
                            step, u, up = row[t, DT, i], row[t, U, i], row[t, G, i]
                            left0 = decay(step * cell[A_, 0, i])
                            left1 = decay(step * cell[A_, 1, i])
                            left2 = decay(step * cell[A_, 2, i])
                            left3 = decay(step * cell[A_, 3, i])
                            tape[t, DECAY, 0, i], tape[t, DECAY, 1, i] = left0, left1
                            tape[t, DECAY, 2, i], tape[t, DECAY, 3, i] = left2, left3
                            h0, h1 = left0 * cell[H, 0, i], left1 * cell[H, 1, i]
                            h2, h3 = left2 * cell[H, 2, i], left3 * cell[H, 3, i]
                            tape[t, DECAYED, 0, i], tape[t, DECAYED, 1, i] = h0, h1
                            tape[t, DECAYED, 2, i], tape[t, DECAYED, 3, i] = h2, h3
                            h0, h1, h2, h3 = h0 + u * b0, h1 + u * b1, h2 + u * b2, h3 + u * b3
                            cell[H, 0, i], cell[H, 1, i] = h0, h1
                            cell[H, 2, i], cell[H, 3, i] = h2, h3
                            total0 += up * h0
                            total1 += up * h1
                            total2 += up * h2
                            total3 += up * h3
                        gC[b, t, n] += total0
                        gC[b, t, n + 1] += total1
                        gC[b, t, n + 2] += total2
                        gC[b, t, n + 3] += total3
                    for t in range(time - 1, -1, -1):
                        b0, b1, b2, b3 = four(B[b, t], n)
                        c0, c1, c2, c3 = four(C[b, t], n)
                        total0, total1, total2, total3 = zero, zero, zero, zero
                        for i in range(WIDTH):
                            step, u, up = row[t, DT, i], row[t, U, i], row[t, G, i]
                            gh0, gh1 = cell[GH, 0, i] + c0 * up, cell[GH, 1, i] + c1 * up
                            gh2, gh3 = cell[GH, 2, i] + c2 * up, cell[GH, 3, i] + c3 * up
                            total0 += gh0 * u
                            total1 += gh1 * u
                            total2 += gh2 * u
                            total3 += gh3 * u
                            row[t, GU, i] += gh0 * b0 + gh1 * b1 + gh2 * b2 + gh3 * b3
                            # gradients of the exponents, step · A
                            e0, e1 = gh0 * tape[t, DECAYED, 0, i], gh1 * tape[t, DECAYED, 1, i]
                            e2, e3 = gh2 * tape[t, DECAYED, 2, i], gh3 * tape[t, DECAYED, 3, i]
                            row[t, GR, i] += (
                                e0 * cell[A_, 0, i]
                                + e1 * cell[A_, 1, i]
                                + e2 * cell[A_, 2, i]
                                + e3 * cell[A_, 3, i]
                            )
                            cell[GA, 0, i] += e0 * step
                            cell[GA, 1, i] += e1 * step
                            cell[GA, 2, i] += e2 * step
                            cell[GA, 3, i] += e3 * step
                            cell[GH, 0, i], cell[GH, 1, i] = (
                                gh0 * tape[t, DECAY, 0, i],
                                gh1 * tape[t, DECAY, 1, i],
                            )
                            cell[GH, 2, i], cell[GH, 3, i] = (
                                gh2 * tape[t, DECAY, 2, i],
                                gh3 * tape[t, DECAY, 3, i],
                            )
                        gB[b, t, n] += total0
                        gB[b, t, n + 1] += total1
                        gB[b, t, n + 2] += total2
                        gB[b, t, n + 3] += total3
                for t in range(time):
                    for i in range(width):
                        c = first + i
                        gx[b, t, c] = row[t, GU, i] * row[t, DT, i] + row[t, G, i] * D[c]
                        gdt[b, t, c] = row[t, GU, i] * x[b, t, c] + row[t, GR, i]
                        gD[c] += row[t, G, i] * x[b, t, c]
        for c in range(d_inner):
            for n in range(d_state):
                gA[c, n] = cells[c // WIDTH, n // GROUP, GA, n % GROUP, c % WIDTH]

    return forward, backward
