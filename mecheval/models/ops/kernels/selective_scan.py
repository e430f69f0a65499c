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
# … and for each channel, time and state of a pair
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
    """Adds to `gB`, `gC` and `gD` and writes the other gradients, given `g`, the gradient of y. `d_state` is even.

    The states are computed again, a block of channels and a pair of states of one sequence at a time, and then swept
    from the end with gh_t = exp(dt_{t+1} A) gh_{t+1} + C_t g_t. A pair shares what it reads of the channels.
    """
    batch, time, d_inner = x.shape
    d_state, blocks, zero, nan = A.shape[1], -(-d_inner // WIDTH), x.dtype.type(0), x.dtype.type(np.nan)
    low, high, most = A.min(), A.max(), x.dtype.type(LN2 * np.finfo(x.dtype).maxexp)
    tape, row = np.empty((time, 2, 2, WIDTH), x.dtype), np.zeros((time, 5, WIDTH), x.dtype)
    cell = np.zeros((blocks, d_state // 2, 4, 2, WIDTH), x.dtype)
    for c in range(d_inner):
        for n in range(d_state):
            cell[c // WIDTH, n // 2, A_, n % 2, c % WIDTH] = A[c, n]
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
            for pair in range(d_state // 2):
                n, m = 2 * pair, 2 * pair + 1
                for t in range(time):
                    b_n, b_m, total_n, total_m = B[b, t, n], B[b, t, m], zero, zero
                    for i in range(WIDTH):
                        left_n = decay(row[t, DT, i] * cell[block, pair, A_, 0, i])
                        left_m = decay(row[t, DT, i] * cell[block, pair, A_, 1, i])
                        decayed_n, decayed_m = left_n * cell[block, pair, H, 0, i], left_m * cell[block, pair, H, 1, i]
                        tape[t, DECAY, 0, i], tape[t, DECAYED, 0, i] = left_n, decayed_n
                        tape[t, DECAY, 1, i], tape[t, DECAYED, 1, i] = left_m, decayed_m
                        h_n, h_m = decayed_n + row[t, U, i] * b_n, decayed_m + row[t, U, i] * b_m
                        cell[block, pair, H, 0, i], cell[block, pair, H, 1, i] = h_n, h_m
                        total_n += row[t, G, i] * h_n
                        total_m += row[t, G, i] * h_m
                    gC[b, t, n] += total_n
                    gC[b, t, m] += total_m
                for t in range(time - 1, -1, -1):
                    b_n, c_n, total_n = B[b, t, n], C[b, t, n], zero
                    b_m, c_m, total_m = B[b, t, m], C[b, t, m], zero
                    for i in range(WIDTH):
                        gh_n = cell[block, pair, GH, 0, i] + c_n * row[t, G, i]
                        gh_m = cell[block, pair, GH, 1, i] + c_m * row[t, G, i]
                        total_n += gh_n * row[t, U, i]
                        total_m += gh_m * row[t, U, i]
                        row[t, GU, i] += gh_n * b_n + gh_m * b_m
                        exponent_n, exponent_m = gh_n * tape[t, DECAYED, 0, i], gh_m * tape[t, DECAYED, 1, i]
                        row[t, GR, i] += (
                            exponent_n * cell[block, pair, A_, 0, i] + exponent_m * cell[block, pair, A_, 1, i]
                        )
                        cell[block, pair, GA, 0, i] += exponent_n * row[t, DT, i]
                        cell[block, pair, GA, 1, i] += exponent_m * row[t, DT, i]
                        cell[block, pair, GH, 0, i] = gh_n * tape[t, DECAY, 0, i]
                        cell[block, pair, GH, 1, i] = gh_m * tape[t, DECAY, 1, i]
                    gB[b, t, n] += total_n
                    gB[b, t, m] += total_m
            for t in range(time):
                for i in range(width):
                    c = first + i
                    gx[b, t, c] = row[t, GU, i] * row[t, DT, i] + row[t, G, i] * D[c]
                    gdt[b, t, c] = row[t, GU, i] * x[b, t, c] + row[t, GR, i]
                    gD[c] += row[t, G, i] * x[b, t, c]
    for c in range(d_inner):
        for n in range(d_state):
            gA[c, n] = cell[c // WIDTH, n // 2, GA, n % 2, c % WIDTH]
