"""The linear recurrence and its gradients, one head of one document at a time.

The memory stays in the processor's cache. Its rows are the vectors, four of them in one loop, so
that sums over rows go through memory once for four. The backward pass keeps the memory before
every CHUNK steps and computes the steps between again, chunk by chunk from the last.
"""

import numpy as np
from numba import njit

from mecheval.models.ops.kernels import FAST, GROUP, four

CHUNK = 16  # steps: their memories fit into the processor's second cache


@njit(inline="always")
def _sum_rows(x, rows, y):
    """Write y = Σ_i x_i rows_i."""
    y[:] = 0
    for i in range(0, len(rows), GROUP):
        x0, x1, x2, x3 = four(x, i)
        r0, r1, r2, r3 = four(rows, i)
        for j in range(len(y)):
            y[j] += x0 * r0[j] + x1 * r1[j] + x2 * r2[j] + x3 * r3[j]


@njit(inline="always")
def _multiply_rows(rows, x, y):
    """Write y_i = rows_i · x."""
    for i in range(0, len(rows), GROUP):
        r0, r1, r2, r3 = four(rows, i)
        y0 = y1 = y2 = y3 = x.dtype.type(0)
        for j in range(len(x)):
            y0 += r0[j] * x[j]
            y1 += r1[j] * x[j]
            y2 += r2[j] * x[j]
            y3 += r3[j] * x[j]
        y[i], y[i + 1], y[i + 2], y[i + 3] = y0, y1, y2, y3


@njit(inline="always")
def _multiply_pairs(left, right, y):
    """Write y_i = left_i · right_i."""
    for i in range(0, len(left), GROUP):
        l0, l1, l2, l3 = four(left, i)
        r0, r1, r2, r3 = four(right, i)
        y0 = y1 = y2 = y3 = y.dtype.type(0)
        for j in range(left.shape[1]):
            y0 += l0[j] * r0[j]
            y1 += l1[j] * r1[j]
            y2 += l2[j] * r2[j]
            y3 += l3[j] * r3[j]
        y[i], y[i + 1], y[i + 2], y[i + 3] = y0, y1, y2, y3


@njit(inline="always")
def _add_outer(x, y, rows):
    """Add x yᵀ to the rows."""
    for i in range(0, len(rows), GROUP):
        x0, x1, x2, x3 = four(x, i)
        r0, r1, r2, r3 = four(rows, i)
        for j in range(len(y)):
            r0[j] += x0 * y[j]
            r1[j] += x1 * y[j]
            r2[j] += x2 * y[j]
            r3[j] += x3 * y[j]


@njit(inline="always")
def _decay_and_add(old, w, x, y, new):
    """Write new = Diag(w) old + x yᵀ."""
    for i in range(0, len(old), GROUP):
        w0, w1, w2, w3 = four(w, i)
        x0, x1, x2, x3 = four(x, i)
        o0, o1, o2, o3 = four(old, i)
        n0, n1, n2, n3 = four(new, i)
        for j in range(len(y)):
            n0[j] = w0 * o0[j] + x0 * y[j]
            n1[j] = w1 * o1[j] + x1 * y[j]
            n2[j] = w2 * o2[j] + x2 * y[j]
            n3[j] = w3 * o3[j] + x3 * y[j]


@njit(inline="always")
def _decay_and_add_two(old, w, x, y, k, v, new):
    """Write new = Diag(w) old + x yᵀ + k vᵀ."""
    for i in range(0, len(old), GROUP):
        w0, w1, w2, w3 = four(w, i)
        x0, x1, x2, x3 = four(x, i)
        k0, k1, k2, k3 = four(k, i)
        o0, o1, o2, o3 = four(old, i)
        n0, n1, n2, n3 = four(new, i)
        for j in range(len(y)):
            n0[j] = w0 * o0[j] + x0 * y[j] + k0 * v[j]
            n1[j] = w1 * o1[j] + x1 * y[j] + k1 * v[j]
            n2[j] = w2 * o2[j] + x2 * y[j] + k2 * v[j]
            n3[j] = w3 * o3[j] + x3 * y[j] + k3 * v[j]


@njit(inline="always")
def _step(S, n, t, h, k, v, w, a, b, held, new):
    """Write the memory after step t, and `held`, the value that is erased."""
    if a.size:
        _sum_rows(a[n, t, h], S, held)
        _decay_and_add_two(S, w[n, t, h], b[n, t, h], held, k[n, t, h], v[n, t, h], new)
    else:
        _decay_and_add(S, w[n, t, h], k[n, t, h], v[n, t, h], new)


@njit(cache=True, fastmath=FAST, error_model="numpy")
def forward(q, k, v, w, a, b, o):
    """Write the outputs; `a` and `b` have no elements where nothing is erased."""
    batch, time, heads, d_key = q.shape
    steps, d_value = k.shape[1] // time, v.shape[3]
    S, held = np.empty((d_key, d_value), q.dtype), np.empty(d_value, q.dtype)
    for n in range(batch):
        for h in range(heads):
            S[:] = 0
            for t in range(k.shape[1]):
                _step(S, n, t, h, k, v, w, a, b, held, S)
                if t % steps == steps - 1:
                    _sum_rows(q[n, t // steps, h], S, o[n, t // steps, h])


@njit(cache=True, fastmath=FAST, error_model="numpy")
def backward(q, k, v, w, a, b, g, gq, gk, gv, gw, ga, gb):
    """Write the gradients of the inputs, given `g`, that of the outputs."""
    batch, time, heads, d_key = q.shape
    length, d_value = k.shape[1], v.shape[3]
    steps, chunks = length // time, (length + CHUNK - 1) // CHUNK
    starts = np.empty((chunks, d_key, d_value), q.dtype)
    S = np.empty((CHUNK + 1, d_key, d_value), q.dtype)
    held, gheld = np.empty((CHUNK, d_value), q.dtype), np.empty(d_value, q.dtype)
    G = np.empty((d_key, d_value), q.dtype)
    for n in range(batch):
        for h in range(heads):
            G[:] = 0
            S[0] = 0
            for t in range(length):
                if t % CHUNK == 0:
                    starts[t // CHUNK] = S[0]
                if t // CHUNK < chunks - 1:
                    _step(S[0], n, t, h, k, v, w, a, b, held[0], S[0])
            for chunk in range(chunks - 1, -1, -1):
                first = chunk * CHUNK
                last = min(first + CHUNK, length) - 1
                S[0] = starts[chunk]
                for t in range(first, last + 1):
                    i = t - first
                    _step(S[i], n, t, h, k, v, w, a, b, held[i], S[i + 1])
                for t in range(last, first - 1, -1):
                    before, after = S[t - first], S[t - first + 1]
                    if t % steps == steps - 1:
                        up = g[n, t // steps, h]
                        _multiply_rows(after, up, gq[n, t // steps, h])
                        _add_outer(q[n, t // steps, h], up, G)
                    _multiply_rows(G, v[n, t, h], gk[n, t, h])
                    _sum_rows(k[n, t, h], G, gv[n, t, h])
                    _multiply_pairs(G, before, gw[n, t, h])
                    if a.size:
                        _multiply_rows(G, held[t - first], gb[n, t, h])
                        _sum_rows(b[n, t, h], G, gheld)
                        _multiply_rows(before, gheld, ga[n, t, h])
                        _decay_and_add(G, w[n, t, h], a[n, t, h], gheld, G)
                    else:
                        for i in range(d_key):
                            G[i] *= w[n, t, h, i]
