"""The linear recurrence and its gradients, one head of one document at a time.

WIDTH columns of the memory are the lanes of the vector unit, and four of its rows share a loop; the
last block of columns is padded with zeros. The memory stays in the processor's cache. The backward
pass keeps the memory before every CHUNK steps and computes the steps between again, chunk by chunk
from the last. Scratch arrays are few and their last axis is a constant, so that LLVM knows what
cannot overlap; the loops are written out for the same reason. Where nothing is erased,
`additive_recurrence` takes half the time.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import njit

from mecheval.models.ops.kernels import GROUP, compile_for, four

WIDTHS = 16, 32, 64
CHUNK = 16  # steps: their memories fit into the processor's second cache

# rows of the scratch array: what is written, held, read, and the gradients of the three
V, HELD, OUT, GV, GHELD, UP = range(6)


def block_width(columns: int) -> int:
    """Return the widest block without more padding than a narrower one."""
    return min(WIDTHS, key=lambda width: (-columns % width, -width))


@cache
def kernels(WIDTH: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """Compile `forward` and `backward` for blocks of this width."""

    @njit(inline="always")
    def hold(S, a, row):
        """Write what the memory holds at a."""
        row[HELD] = 0
        for i in range(0, len(a), GROUP):
            a0, a1, a2, a3 = four(a, i)
            for j in range(WIDTH):
                row[HELD, j] += (
                    a0 * S[i, j] + a1 * S[i + 1, j] + a2 * S[i + 2, j] + a3 * S[i + 3, j]
                )

    @njit(inline="always")
    def step(old, new, k, w, b, row):
        """Write Diag(w) old + b heldᵀ + k vᵀ."""
        for i in range(0, len(k), GROUP):
            k0, k1, k2, k3 = four(k, i)
            w0, w1, w2, w3 = four(w, i)
            b0, b1, b2, b3 = four(b, i)
            for j in range(WIDTH):
                v, held = row[V, j], row[HELD, j]
                new[i, j] = w0 * old[i, j] + (b0 * held + k0 * v)
                new[i + 1, j] = w1 * old[i + 1, j] + (b1 * held + k1 * v)
                new[i + 2, j] = w2 * old[i + 2, j] + (b2 * held + k2 * v)
                new[i + 3, j] = w3 * old[i + 3, j] + (b3 * held + k3 * v)

    @njit(inline="always")
    def step_and_read(S, k, w, b, q, row):
        """Do the same in place, and write Sᵀ q."""
        row[OUT] = 0
        for i in range(0, len(k), GROUP):
            k0, k1, k2, k3 = four(k, i)
            w0, w1, w2, w3 = four(w, i)
            b0, b1, b2, b3 = four(b, i)
            q0, q1, q2, q3 = four(q, i)
            for j in range(WIDTH):
                v, held = row[V, j], row[HELD, j]
                s0 = w0 * S[i, j] + (b0 * held + k0 * v)
                s1 = w1 * S[i + 1, j] + (b1 * held + k1 * v)
                s2 = w2 * S[i + 2, j] + (b2 * held + k2 * v)
                s3 = w3 * S[i + 3, j] + (b3 * held + k3 * v)
                S[i, j], S[i + 1, j], S[i + 2, j], S[i + 3, j] = s0, s1, s2, s3
                row[OUT, j] += q0 * s0 + q1 * s1 + q2 * s2 + q3 * s3

    @compile_for(WIDTH)
    def forward(q, k, v, w, a, b, o):
        """Write the outputs."""
        batch, time, heads, d_key = q.shape
        length, d_value = k.shape[1], v.shape[3]
        steps, zero = length // time, q.dtype.type(0)
        S, row = np.empty((d_key, WIDTH), q.dtype), np.zeros((6, WIDTH), q.dtype)
        for n in range(batch):
            for h in range(heads):
                for low in range(0, d_value, WIDTH):
                    columns = min(WIDTH, d_value - low)
                    S[:] = zero
                    row[V, columns:] = zero
                    for t in range(length):
                        row[V, :columns] = v[n, t, h, low : low + columns]
                        hold(S, a[n, t, h], row)
                        if t % steps == steps - 1:
                            step_and_read(
                                S, k[n, t, h], w[n, t, h], b[n, t, h], q[n, t // steps, h], row
                            )
                            o[n, t // steps, h, low : low + columns] = row[OUT, :columns]
                        else:
                            step(S, S, k[n, t, h], w[n, t, h], b[n, t, h], row)

    @compile_for(WIDTH)
    def backward(q, k, v, w, a, b, g, gq, gk, gv, gw, ga, gb):
        """Write `gv` and add to the other gradients, given `g`, that of the outputs."""
        batch, time, heads, d_key = q.shape
        length, d_value = k.shape[1], v.shape[3]
        steps, chunks, zero = length // time, (length + CHUNK - 1) // CHUNK, q.dtype.type(0)
        starts = np.empty((chunks, d_key, WIDTH), q.dtype)
        S, G = np.empty((CHUNK + 1, d_key, WIDTH), q.dtype), np.empty((d_key, WIDTH), q.dtype)
        row, helds = np.zeros((6, WIDTH), q.dtype), np.empty((CHUNK, WIDTH), q.dtype)
        for n in range(batch):
            for h in range(heads):
                for low in range(0, d_value, WIDTH):
                    columns = min(WIDTH, d_value - low)
                    row[:, columns:] = zero
                    S[0] = zero
                    for t in range((chunks - 1) * CHUNK):
                        if t % CHUNK == 0:
                            starts[t // CHUNK] = S[0]
                        row[V, :columns] = v[n, t, h, low : low + columns]
                        hold(S[0], a[n, t, h], row)
                        step(S[0], S[0], k[n, t, h], w[n, t, h], b[n, t, h], row)
                    starts[chunks - 1] = S[0]
                    G[:] = zero
                    for chunk in range(chunks - 1, -1, -1):
                        first = chunk * CHUNK
                        last = min(first + CHUNK, length) - 1
                        S[0] = starts[chunk]
                        for t in range(first, last + 1):
                            c = t - first
                            row[V, :columns] = v[n, t, h, low : low + columns]
                            hold(S[c], a[n, t, h], row)
                            helds[c] = row[HELD]
                            step(S[c], S[c + 1], k[n, t, h], w[n, t, h], b[n, t, h], row)
                        for t in range(last, first - 1, -1):
                            c = t - first
                            before, after = S[c], S[c + 1]
                            row[V, :columns] = v[n, t, h, low : low + columns]
                            row[GV] = zero
                            if t % steps == steps - 1:
                                row[UP, :columns] = g[n, t // steps, h, low : low + columns]
                                query, gquery = q[n, t // steps, h], gq[n, t // steps, h]
                                for i in range(d_key):
                                    x, y = query[i], zero
                                    for j in range(WIDTH):
                                        y += after[i, j] * row[UP, j]
                                        G[i, j] += x * row[UP, j]
                                    gquery[i] += y
                            key, gkey, gdecay = k[n, t, h], gk[n, t, h], gw[n, t, h]
                            row[HELD] = helds[c]
                            row[GHELD] = zero
                            at, gerase = b[n, t, h], gb[n, t, h]
                            for i in range(0, d_key, 2):
                                x0, x1, b0, b1 = key[i], key[i + 1], at[i], at[i + 1]
                                k0 = k1 = d0 = d1 = e0 = e1 = zero
                                for j in range(WIDTH):
                                    g0, g1 = G[i, j], G[i + 1, j]
                                    value, held = row[V, j], row[HELD, j]
                                    k0 += g0 * value
                                    k1 += g1 * value
                                    e0 += g0 * held
                                    e1 += g1 * held
                                    d0 += g0 * before[i, j]
                                    d1 += g1 * before[i + 1, j]
                                    row[GV, j] += x0 * g0 + x1 * g1
                                    row[GHELD, j] += b0 * g0 + b1 * g1
                                gkey[i] += k0
                                gkey[i + 1] += k1
                                gdecay[i] += d0
                                gdecay[i + 1] += d1
                                gerase[i] += e0
                                gerase[i + 1] += e1
                            where, gwhere, decay = a[n, t, h], ga[n, t, h], w[n, t, h]
                            for i in range(d_key):
                                x, y, keep = where[i], zero, decay[i]
                                for j in range(WIDTH):
                                    y += before[i, j] * row[GHELD, j]
                                    G[i, j] = keep * G[i, j] + x * row[GHELD, j]
                                gwhere[i] += y
                            gv[n, t, h, low : low + columns] = row[GV, :columns]

    return forward, backward
