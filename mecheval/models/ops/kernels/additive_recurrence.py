"""The linear recurrence where nothing is erased, S_t = Diag(w_t) S_{t−1} + k_t v_tᵀ, o_t = S_tᵀ q_t.

Backwards, the memory is computed once more from the first step, and then its gradient from the
last, G_t = Diag(w_{t+1}) G_{t+1} + q_t g_tᵀ; no memory is kept:

    gq_t = S_t g_t        gk_t = G_t v_t        gv_t = G_tᵀ k_t

The gradient of log w_t, e_t = the sums of the rows of G_t ∘ Diag(w_t) S_{t−1}, would need both at
once. It follows from the others: the sums of the rows of G_t ∘ S_t are e_t + k_t ∘ gk_t by the first
equation and e_{t+1} + q_t ∘ gq_t by the second, and e_1 = 0.

WIDTH columns of the memory are the lanes of the vector unit, and four of its rows share a loop.
Rows are indexed by group and place, because LLVM cannot tell whether i, i + 1, … are negative.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import njit

from mecheval.models.ops.kernels import GROUP, compile_for, four
from mecheval.models.ops.kernels.exponential import exp

# rows of the scratch array: what is written and read, and the gradients of the two
V, OUT, GV, UP = range(4)


@njit(inline="always")
def keep(log_w, w):
    """Write what every row keeps, given one number for each, one for all, or none."""
    if len(log_w) == 1:
        w[:] = exp(log_w[0])
    else:
        for i in range(len(log_w)):
            w[i] = exp(log_w[i])


@njit(inline="always")
def add_products(total, x, y, sign):
    """Add ±x ∘ y to the total of each row, or their sum to the one of all rows."""
    if len(total) == 1:
        for i in range(len(x)):
            total[0] += sign * x[i] * y[i]
    else:
        for i in range(len(total)):
            total[i] += sign * x[i] * y[i]


@cache
def kernels(WIDTH: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """Compile `forward` and `backward` for blocks of this width."""

    @njit(inline="always")
    def step(S, w, k, row):
        """Write Diag(w) S + k vᵀ in place."""
        for r in range(len(k)):
            w0, w1, w2, w3 = four(w[r], 0)
            k0, k1, k2, k3 = four(k[r], 0)
            for j in range(WIDTH):
                v = row[V, j]
                S[r, 0, j] = w0 * S[r, 0, j] + k0 * v
                S[r, 1, j] = w1 * S[r, 1, j] + k1 * v
                S[r, 2, j] = w2 * S[r, 2, j] + k2 * v
                S[r, 3, j] = w3 * S[r, 3, j] + k3 * v

    @njit(inline="always")
    def step_and_read(S, w, k, q, row):
        """Do the same, and write Sᵀ q."""
        row[OUT] = 0
        for r in range(len(k)):
            w0, w1, w2, w3 = four(w[r], 0)
            k0, k1, k2, k3 = four(k[r], 0)
            q0, q1, q2, q3 = four(q[r], 0)
            for j in range(WIDTH):
                v = row[V, j]
                s0 = w0 * S[r, 0, j] + k0 * v
                s1 = w1 * S[r, 1, j] + k1 * v
                s2 = w2 * S[r, 2, j] + k2 * v
                s3 = w3 * S[r, 3, j] + k3 * v
                S[r, 0, j], S[r, 1, j], S[r, 2, j], S[r, 3, j] = s0, s1, s2, s3
                row[OUT, j] += q0 * s0 + q1 * s1 + q2 * s2 + q3 * s3

    @njit(inline="always")
    def step_and_multiply(S, w, k, gq, row, zero):
        """Do the same step, and add S g to `gq`."""
        for r in range(len(k)):
            w0, w1, w2, w3 = four(w[r], 0)
            k0, k1, k2, k3 = four(k[r], 0)
            q0 = q1 = q2 = q3 = zero
            for j in range(WIDTH):
                v, up = row[V, j], row[UP, j]
                s0 = w0 * S[r, 0, j] + k0 * v
                s1 = w1 * S[r, 1, j] + k1 * v
                s2 = w2 * S[r, 2, j] + k2 * v
                s3 = w3 * S[r, 3, j] + k3 * v
                S[r, 0, j], S[r, 1, j], S[r, 2, j], S[r, 3, j] = s0, s1, s2, s3
                q0 += s0 * up
                q1 += s1 * up
                q2 += s2 * up
                q3 += s3 * up
            gq[r, 0] += q0
            gq[r, 1] += q1
            gq[r, 2] += q2
            gq[r, 3] += q3

    @njit(inline="always")
    def step_back(G, w, q, k, gk, row, zero):
        """Write Diag(w) G + q gᵀ in place and Gᵀ k, and add G v to `gk`."""
        row[GV] = zero
        for r in range(len(k)):
            w0, w1, w2, w3 = four(w[r], 0)
            q0, q1, q2, q3 = four(q[r], 0)
            x0, x1, x2, x3 = four(k[r], 0)
            k0 = k1 = k2 = k3 = zero
            for j in range(WIDTH):
                v, up = row[V, j], row[UP, j]
                g0 = w0 * G[r, 0, j] + q0 * up
                g1 = w1 * G[r, 1, j] + q1 * up
                g2 = w2 * G[r, 2, j] + q2 * up
                g3 = w3 * G[r, 3, j] + q3 * up
                G[r, 0, j], G[r, 1, j], G[r, 2, j], G[r, 3, j] = g0, g1, g2, g3
                k0 += g0 * v
                k1 += g1 * v
                k2 += g2 * v
                k3 += g3 * v
                row[GV, j] += x0 * g0 + x1 * g1 + x2 * g2 + x3 * g3
            gk[r, 0] += k0
            gk[r, 1] += k1
            gk[r, 2] += k2
            gk[r, 3] += k3

    @compile_for(WIDTH)
    def forward(q, k, v, log_w, o):
        """Write the outputs."""
        batch, time, heads, d_key = q.shape
        length, d_value, groups = k.shape[1], v.shape[3], d_key // GROUP
        steps, zero = length // time, v.dtype.type(0)
        S, row = np.empty((groups, GROUP, WIDTH), v.dtype), np.zeros((4, WIDTH), v.dtype)
        kept = np.ones(d_key, v.dtype)
        w = kept.reshape(groups, GROUP)
        queries = q.reshape(batch, time, heads, groups, GROUP)
        keys = k.reshape(batch, length, heads, groups, GROUP)
        for n in range(batch):
            for h in range(heads):
                for low in range(0, d_value, WIDTH):
                    columns = min(WIDTH, d_value - low)
                    S[:] = zero
                    row[V, columns:] = zero
                    for t in range(length):
                        row[V, :columns] = v[n, t, h, low : low + columns]
                        keep(log_w[n, t, h], kept)
                        if t % steps == steps - 1:
                            step_and_read(S, w, keys[n, t, h], queries[n, t // steps, h], row)
                            o[n, t // steps, h, low : low + columns] = row[OUT, :columns]
                        else:
                            step(S, w, keys[n, t, h], row)

    @compile_for(WIDTH)
    def backward(q, k, v, log_w, g, gq, gk, gv, glog_w):
        """Write `gv` and add to the other gradients, which are 0, given `g`, the outputs'."""
        batch, time, heads, d_key = q.shape
        length, d_value, groups = k.shape[1], v.shape[3], d_key // GROUP
        steps, zero, one = length // time, v.dtype.type(0), v.dtype.type(1)
        S, row = np.empty((groups, GROUP, WIDTH), v.dtype), np.zeros((4, WIDTH), v.dtype)
        kept, e = np.ones(d_key, v.dtype), np.empty(log_w.shape[3], v.dtype)
        w = kept.reshape(groups, GROUP)
        queries = q.reshape(batch, time, heads, groups, GROUP)
        keys = k.reshape(batch, length, heads, groups, GROUP)
        gqueries, gkeys = gq.reshape(queries.shape), gk.reshape(keys.shape)
        for n in range(batch):
            for h in range(heads):
                for low in range(0, d_value, WIDTH):
                    columns = min(WIDTH, d_value - low)
                    row[:, columns:] = zero
                    S[:] = zero
                    for t in range(length):
                        row[V, :columns] = v[n, t, h, low : low + columns]
                        keep(log_w[n, t, h], kept)
                        key = keys[n, t, h]
                        if t % steps == steps - 1:
                            row[UP, :columns] = g[n, t // steps, h, low : low + columns]
                            gquery = gqueries[n, t // steps, h]
                            step_and_multiply(S, w, key, gquery, row, zero)
                        else:
                            step(S, w, key, row)
                    S[:] = zero  # from here on G, which has yet to decay by w
                    for t in range(length - 1, -1, -1):
                        row[V, :columns] = v[n, t, h, low : low + columns]
                        row[UP] = zero
                        if t % steps == steps - 1:
                            row[UP, :columns] = g[n, t // steps, h, low : low + columns]
                        query = queries[n, t // steps, h]
                        key = keys[n, t, h]
                        gkey = gkeys[n, t, h]
                        step_back(S, w, query, key, gkey, row, zero)
                        gv[n, t, h, low : low + columns] = row[GV, :columns]
                        keep(log_w[n, t, h], kept)
                e[:] = zero
                for t in range(length if len(e) else 0):
                    keep(log_w[n, t, h], kept)
                    for i in range(len(e)):
                        if kept[i] == zero:  # the sum is exactly 0: so are its rounding errors
                            e[i] = zero
                        glog_w[n, t, h, i] = e[i]
                    add_products(e, k[n, t, h], gk[n, t, h], one)
                    if t % steps == steps - 1:
                        add_products(e, q[n, t // steps, h], gq[n, t // steps, h], -one)

    return forward, backward
