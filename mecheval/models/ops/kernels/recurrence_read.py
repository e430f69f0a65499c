"""Single reads of the linear recurrence and their gradients: a query carried back through it.

r_{t−1} = w_t ∘ r_t + a_t (b_t · r_t)        o = Σ_t (k_t · r_t) v_t,   r_last = q
"""

import numpy as np
from numba import njit

from mecheval.models.ops.kernels import FAST


@njit(inline="always")
def _dot(x, y):
    total = x.dtype.type(0)
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@njit(inline="always")
def _decay(r, w, new):
    """Write w ∘ r, given a number for each row, one for all, or none."""
    if len(w) == len(r):
        for i in range(len(r)):
            new[i] = w[i] * r[i]
    elif len(w):
        for i in range(len(r)):
            new[i] = w[0] * r[i]
    else:
        new[:] = r


@njit(inline="always")
def _carry_back(r, w, a, b, new):
    """Write r_{t−1} and return b · r_t, what the query reads of the value that is erased.

    Where nothing is erased, a and b have no elements.
    """
    erased = _dot(b, r)
    _decay(r, w, new)
    for i in range(len(a)):
        new[i] += erased * a[i]
    return erased


@njit(cache=True, fastmath=FAST, error_model="numpy")
def forward(q, k, v, w, a, b, last, o):
    """Write what each query reads after step `last`."""
    batch, reads, heads, d_key = q.shape
    r = np.empty(d_key, q.dtype)
    for n in range(batch):
        for i in range(reads):
            for h in range(heads):
                out = o[n, i, h]
                out[:] = 0
                r[:] = q[n, i, h]
                for t in range(last[n, i], -1, -1):
                    match, value = _dot(k[n, t, h], r), v[n, t, h]
                    for j in range(len(out)):
                        out[j] += match * value[j]
                    _carry_back(r, w[n, t, h], a[n, t, h], b[n, t, h], r)


@njit(cache=True, fastmath=FAST, error_model="numpy")
def backward(q, k, v, w, a, b, last, g, gq, gk, gv, gw, ga, gb):
    """Write `gq` and add to the other gradients, given `g`, that of the outputs."""
    batch, reads, heads, d_key = q.shape
    length = k.shape[1]
    r, erased = np.empty((length + 1, d_key), q.dtype), np.empty(length, q.dtype)
    for n in range(batch):
        for i in range(reads):
            for h in range(heads):
                up, end = g[n, i, h], last[n, i]
                r[end + 1] = q[n, i, h]  # row t + 1 is the query before it passes step t
                for t in range(end, -1, -1):
                    erased[t] = _carry_back(r[t + 1], w[n, t, h], a[n, t, h], b[n, t, h], r[t])
                down = gq[n, i, h]  # the gradient of the query before step t
                down[:] = 0
                for t in range(end + 1):
                    now, key, where, at = r[t + 1], k[n, t, h], a[n, t, h], b[n, t, h]
                    match, gmatch, gerased = _dot(key, now), _dot(v[n, t, h], up), _dot(where, down)
                    gvalue, gkey, gdecay = gv[n, t, h], gk[n, t, h], gw[n, t, h]
                    for j in range(len(up)):
                        gvalue[j] += match * up[j]
                    if len(gdecay) == 1:
                        gdecay[0] += _dot(down, now)
                    else:
                        for d in range(len(gdecay)):
                            gdecay[d] += down[d] * now[d]
                    for d in range(len(where)):
                        ga[n, t, h, d] += erased[t] * down[d]
                        gb[n, t, h, d] += gerased * now[d]
                    _decay(down, w[n, t, h], down)
                    for d in range(d_key):
                        gkey[d] += gmatch * now[d]
                        down[d] += gmatch * key[d]
                    for d in range(len(at)):
                        down[d] += gerased * at[d]
