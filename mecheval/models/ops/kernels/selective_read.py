"""The selective scan read at one token alone, and its gradients, compiled for one thread.

What is read at token q is a sum over the tokens before it, each as it has decayed until then: no state is carried, and
nothing of the forward pass is needed backward. Laid out as the scan's kernels are.
"""

import numpy as np
from numba import njit

from mecheval.models.ops.kernels.exponential import LN2, decay
from mecheval.models.ops.kernels.selective_scan import FAST, WIDTH

# what the scratch arrays hold: for each channel and state …
A_, GA = range(2)
# … for each channel at one time (AGE is Σ dt from there to the token that is read, U is dt · x, R what of U is read) …
AGE, U, R = range(3)
# … and in the gradients (GU is g · u, AGED is g · u · age, GAGE the gradient of the age)
GU, AGED, GAGE = range(3, 6)


@njit(cache=True, fastmath=FAST)
def forward(x, dt, A, B, C, D, at, y):
    """Writes `y`."""
    batch, _, d_inner = x.shape
    d_state, blocks, zero, nan = A.shape[1], -(-d_inner // WIDTH), x.dtype.type(0), x.dtype.type(np.nan)
    low, high, most = A.min(), A.max(), x.dtype.type(LN2 * np.finfo(x.dtype).maxexp)
    cell, row = np.zeros((blocks, d_state, WIDTH), x.dtype), np.zeros((3, WIDTH), x.dtype)
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
    """Adds to `gB`, `gC` and `gD` and writes the other gradients, given `g`, the gradient of y."""
    batch, time, d_inner = x.shape
    d_state, blocks, zero, nan = A.shape[1], -(-d_inner // WIDTH), x.dtype.type(0), x.dtype.type(np.nan)
    low, high, most = A.min(), A.max(), x.dtype.type(LN2 * np.finfo(x.dtype).maxexp)
    cell, row = np.zeros((blocks, d_state, 2, WIDTH), x.dtype), np.zeros((6, WIDTH), x.dtype)
    gage = np.zeros((time, WIDTH), x.dtype)
    for c in range(d_inner):
        for n in range(d_state):
            cell[c // WIDTH, n, A_, c % WIDTH] = A[c, n]
    for b in range(batch):
        gx[b, at[b] + 1 :] = zero
        gdt[b, at[b] + 1 :] = zero
        for block in range(blocks):
            first = block * WIDTH
            width = min(WIDTH, d_inner - first)
            row[:] = zero
            for s in range(at[b], -1, -1):
                for i in range(width):
                    row[U, i] = dt[b, s, first + i] * x[b, s, first + i]
                    row[GU, i] = g[b, first + i] * row[U, i]
                    row[AGED, i] = row[GU, i] * row[AGE, i]
                row[R] = zero
                row[GAGE] = zero
                for n in range(d_state):
                    c_n, b_n, total = C[b, 0, n], B[b, s, n], zero
                    w = c_n * b_n
                    for i in range(WIDTH):
                        left = decay(row[AGE, i] * cell[block, n, A_, i])
                        total += row[GU, i] * left
                        left *= w
                        row[R, i] += left
                        row[GAGE, i] += left * cell[block, n, A_, i]
                        cell[block, n, GA, i] += left * row[AGED, i]
                    gB[b, s, n] += total * c_n
                    gC[b, 0, n] += total * b_n
                for i in range(width):
                    c = first + i
                    gx[b, s, c] = g[b, c] * dt[b, s, c] * row[R, i]
                    gdt[b, s, c] = g[b, c] * x[b, s, c] * row[R, i]
                    gage[s, i] = row[GU, i] * row[GAGE, i]
                    age = row[AGE, i] + dt[b, s, c]
                    row[AGE, i] = age if max(age * low, age * high) < most else nan
            for i in range(width):
                gx[b, at[b], first + i] += g[b, first + i] * D[first + i]
                gD[first + i] += g[b, first + i] * x[b, at[b], first + i]
            row[R] = zero  # every token ages those before it
            for s in range(at[b] + 1):
                for i in range(width):
                    gdt[b, s, first + i] += row[R, i]
                    row[R, i] += gage[s, i]
    for c in range(d_inner):
        for n in range(d_state):
            gA[c, n] = cell[c // WIDTH, n, GA, c % WIDTH]
