"""The selective scan read at one token only, and its gradients.

The output at token q is a sum over the tokens before it, each decayed until then: no state is
carried, and backward needs nothing of the forward pass. The layout is that of the scan's kernels.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import njit

from mecheval.models.ops.kernels import FAST, GROUP, four
from mecheval.models.ops.kernels.exponential import decay
from mecheval.models.ops.kernels.selective_scan import limits

# contents of the scratch arrays: for each channel and state …
A_, GA = range(2)
# … for each channel at one time (AGE is Σ dt from there to the token that is read, R the share of
# u = dt · x that is read) …
AGE, R = range(2)
# … and in the gradients (GU is g · u, AGED is g · u · age, GAGE the gradient of the age)
X, DT, GU, AGED, GAGE = range(2, 7)


@cache
def kernels(WIDTH: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """Compile `forward` and `backward` for blocks of this width."""

    @njit(cache=True, fastmath=FAST)
    def forward(x, dt, A, B, C, D, at, y):
        """Write `y`."""
        batch, _, d_inner = x.shape
        d_state, blocks = A.shape[1], -(-d_inner // WIDTH)
        zero, nan, low, high, most = limits(A)
        cell, row = np.zeros((blocks, d_state, WIDTH), x.dtype), np.zeros((2, WIDTH), x.dtype)
        for c in range(d_inner):
            for n in range(d_state):
                cell[c // WIDTH, n, c % WIDTH] = A[c, n]
        for b in range(batch):
            for block in range(blocks):
                first = block * WIDTH
                width = min(WIDTH, d_inner - first)
                row[AGE] = zero
                for i in range(width):
                    y[b, first + i] = D[first + i] * x[b, at[b], first + i]
                for s in range(at[b], -1, -1):
                    row[R] = zero
                    for n in range(d_state):
                        w = C[b, 0, n] * B[b, s, n]
                        for i in range(WIDTH):
                            row[R, i] += w * decay(row[AGE, i] * cell[block, n, i])
                    for i in range(width):
                        y[b, first + i] += dt[b, s, first + i] * x[b, s, first + i] * row[R, i]
                        age = row[AGE, i] + dt[b, s, first + i]
                        row[AGE, i] = age if max(age * low, age * high) < most else nan

    @njit(cache=True, fastmath=FAST)
    def backward(x, dt, A, B, C, D, at, g, gx, gdt, gA, gB, gC, gD):
        """Add to `gB`, `gC` and `gD` and write the other gradients, given `g`, the gradient of y.

        x and dt are read and their gradients written in the order of memory, which is faster.
        """
        batch, time, d_inner = x.shape
        d_state, blocks = A.shape[1], -(-d_inner // WIDTH)
        zero, nan, low, high, most = limits(A)
        row, total = np.zeros((time, 7, WIDTH), x.dtype), np.zeros(WIDTH, x.dtype)
        cells = np.zeros((blocks, d_state // GROUP, 2, GROUP, WIDTH), x.dtype)
        for c in range(d_inner):
            for n in range(d_state):
                cells[c // WIDTH, n // GROUP, A_, n % GROUP, c % WIDTH] = A[c, n]
        for b in range(batch):
            gx[b, at[b] + 1 :] = zero
            gdt[b, at[b] + 1 :] = zero
            for block in range(blocks):
                first = block * WIDTH
                width = min(WIDTH, d_inner - first)
                row[:] = zero
                for s in range(at[b] + 1):
                    for i in range(width):
                        row[s, X, i], row[s, DT, i] = x[b, s, first + i], dt[b, s, first + i]
                total[:] = zero
                for s in range(at[b], -1, -1):
                    for i in range(width):
                        row[s, AGE, i] = total[i]
                        row[s, GU, i] = g[b, first + i] * row[s, DT, i] * row[s, X, i]
                        row[s, AGED, i] = row[s, GU, i] * total[i]
                        age = total[i] + row[s, DT, i]
                        total[i] = age if max(age * low, age * high) < most else nan
                for s in range(at[b] + 1):
                    for group in range(d_state // GROUP):
                        cell, n = cells[block, group], GROUP * group
                        b0, b1, b2, b3 = four(B[b, s], n)
                        c0, c1, c2, c3 = four(C[b, 0], n)
                        w0, w1, w2, w3 = c0 * b0, c1 * b1, c2 * b2, c3 * b3
                        total0, total1, total2, total3 = zero, zero, zero, zero
                        for i in range(WIDTH):
                            age, gu, aged = row[s, AGE, i], row[s, GU, i], row[s, AGED, i]
                            left0, left1 = decay(age * cell[A_, 0, i]), decay(age * cell[A_, 1, i])
                            left2, left3 = decay(age * cell[A_, 2, i]), decay(age * cell[A_, 3, i])
                            total0 += gu * left0
                            total1 += gu * left1
                            total2 += gu * left2
                            total3 += gu * left3
                            left0, left1 = w0 * left0, w1 * left1
                            left2, left3 = w2 * left2, w3 * left3
                            row[s, R, i] += left0 + left1 + left2 + left3
                            row[s, GAGE, i] += (
                                left0 * cell[A_, 0, i]
                                + left1 * cell[A_, 1, i]
                                + left2 * cell[A_, 2, i]
                                + left3 * cell[A_, 3, i]
                            )
                            cell[GA, 0, i] += left0 * aged
                            cell[GA, 1, i] += left1 * aged
                            cell[GA, 2, i] += left2 * aged
                            cell[GA, 3, i] += left3 * aged
                        gB[b, s, n] += total0 * c0
                        gB[b, s, n + 1] += total1 * c1
                        gB[b, s, n + 2] += total2 * c2
                        gB[b, s, n + 3] += total3 * c3
                        gC[b, 0, n] += total0 * b0
                        gC[b, 0, n + 1] += total1 * b1
                        gC[b, 0, n + 2] += total2 * b2
                        gC[b, 0, n + 3] += total3 * b3
                total[:] = zero  # every token ages those before it
                for s in range(at[b] + 1):
                    for i in range(width):
                        c = first + i
                        read = g[b, c] * row[s, R, i]
                        gx[b, s, c] = row[s, DT, i] * read
                        gdt[b, s, c] = row[s, X, i] * read + total[i]
                        total[i] += row[s, GU, i] * row[s, GAGE, i]
                for i in range(width):
                    gx[b, at[b], first + i] += g[b, first + i] * D[first + i]
                    gD[first + i] += g[b, first + i] * x[b, at[b], first + i]
        for c in range(d_inner):
            for n in range(d_state):
                gA[c, n] = cells[c // WIDTH, n // GROUP, GA, n % GROUP, c % WIDTH]

    return forward, backward
