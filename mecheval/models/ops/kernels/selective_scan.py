"""The selective scan and its gradients, compiled for one thread; `selective_scan_ref` says the same in plain torch.

Channels are the lanes of the vector unit, WIDTH of them a block; a last block that is not full is padded with zeros.
Each kernel is one function, and all that an inner loop touches lies in two or three scratch arrays whose last axes are
constants. LLVM then knows what cannot overlap; with strides it does not know it keeps the loop scalar, eight times
slower.
"""

import numpy as np
from numba import njit

from mecheval.models.ops.kernels.exponential import LN2, decay

WIDTH = 64  # 16 and 32 are slower, 128 is no faster
# Sums over channels may change their order and multiply-adds may fuse; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract"}

# what the scratch arrays hold: for each channel and state …
A_, H, GH, GA = range(4)
# … for each channel at one time (U is dt · x; GU the gradient of U, GR that of dt through the decay) …
DT, U, Y = range(3)
G, GU, GR = range(2, 5)
# … and for each channel, state and time
DECAY, DECAYED = range(2)


@njit(cache=True, fastmath=FAST)
def forward(x, dt, A, B, C, D, y):
    """Writes `y`."""
    batch, time, d_inner = x.shape
    d_state, blocks, zero, nan = A.shape[1], -(-d_inner // WIDTH), x.dtype.type(0), x.dtype.type(np.nan)
    low, high, most = A.min(), A.max(), x.dtype.type(LN2 * np.finfo(x.dtype).maxexp)
    cell, row = np.zeros((blocks, d_state, 2, WIDTH), x.dtype), np.zeros((blocks, 3, WIDTH), x.dtype)
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
                    # a state that grows beyond all numbers, of which `decay` would say anything
                    row[block, DT, i] = step if max(step * low, step * high) < most else nan
                    row[block, U, i] = dt[b, t, first + i] * x[b, t, first + i]
                    row[block, Y, i] = D[first + i] * x[b, t, first + i]
                for n in range(d_state):
                    b_n, c_n = B[b, t, n], C[b, t, n]
                    for i in range(WIDTH):
                        h = decay(row[block, DT, i] * cell[block, n, A_, i]) * cell[block, n, H, i]
                        h += row[block, U, i] * b_n
                        cell[block, n, H, i] = h
                        row[block, Y, i] += c_n * h
                for i in range(width):
                    y[b, t, first + i] = row[block, Y, i]


@njit(cache=True, fastmath=FAST)
def backward(x, dt, A, B, C, D, g, gx, gdt, gA, gB, gC, gD):
    """Adds to `gB`, `gC` and `gD` and writes the other gradients, given `g`, the gradient of y.

    The states are computed again, a block of channels of one sequence at a time, and then swept from the end with
    gh_t = exp(dt_{t+1} A) gh_{t+1} + C_t g_t.
    """
    batch, time, d_inner = x.shape
    d_state, blocks, zero, nan = A.shape[1], -(-d_inner // WIDTH), x.dtype.type(0), x.dtype.type(np.nan)
    low, high, most = A.min(), A.max(), x.dtype.type(LN2 * np.finfo(x.dtype).maxexp)
    tape = np.empty((time, d_state, 2, WIDTH), x.dtype)
    cell, row = np.zeros((blocks, d_state, 4, WIDTH), x.dtype), np.zeros((time, 5, WIDTH), x.dtype)
    for c in range(d_inner):
        for n in range(d_state):
            cell[c // WIDTH, n, A_, c % WIDTH] = A[c, n]
    for b in range(batch):
        cell[:, :, H : GH + 1] = zero
        for block in range(blocks):
            first = block * WIDTH
            width = min(WIDTH, d_inner - first)
            row[:] = zero  # the sums, and the padding of a last block
            for t in range(time):
                for i in range(width):
                    step = dt[b, t, first + i]
                    row[t, DT, i] = step if max(step * low, step * high) < most else nan
                    row[t, U, i] = dt[b, t, first + i] * x[b, t, first + i]
                    row[t, G, i] = g[b, t, first + i]
                for n in range(d_state):
                    b_n, total = B[b, t, n], zero
                    for i in range(WIDTH):
                        left = decay(row[t, DT, i] * cell[block, n, A_, i])
                        decayed = left * cell[block, n, H, i]
                        tape[t, n, DECAY, i], tape[t, n, DECAYED, i] = left, decayed
                        h = decayed + row[t, U, i] * b_n
                        cell[block, n, H, i] = h
                        total += row[t, G, i] * h
                    gC[b, t, n] += total
            for t in range(time - 1, -1, -1):
                for n in range(d_state):
                    b_n, c_n, total = B[b, t, n], C[b, t, n], zero
                    for i in range(WIDTH):
                        gh = cell[block, n, GH, i] + c_n * row[t, G, i]
                        total += gh * row[t, U, i]
                        row[t, GU, i] += gh * b_n
                        exponent = gh * tape[t, n, DECAYED, i]
                        row[t, GR, i] += exponent * cell[block, n, A_, i]
                        cell[block, n, GA, i] += exponent * row[t, DT, i]
                        cell[block, n, GH, i] = gh * tape[t, n, DECAY, i]
                    gB[b, t, n] += total
                for i in range(width):
                    c = first + i
                    gx[b, t, c] = row[t, GU, i] * row[t, DT, i] + row[t, G, i] * D[c]
                    gdt[b, t, c] = row[t, GU, i] * x[b, t, c] + row[t, GR, i]
                    gD[c] += row[t, G, i] * x[b, t, c]
    for c in range(d_inner):
        for n in range(d_state):
            gA[c, n] = cell[c // WIDTH, n, GA, c % WIDTH]
