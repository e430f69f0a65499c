"""The softmax of causal attention, attention of single tokens over those before, and gradients.

The softmax works in place: the future is skipped, and nothing between the products is written
twice. Keys and values of the tokens that read are the stream itself.
"""

import numpy as np
from numba import njit

from mecheval.models.ops.kernels import FAST
from mecheval.models.ops.kernels.exponential import decay


@njit(cache=True, fastmath=FAST, error_model="numpy")
def softmax_forward(x, scale):
    """Turn products of queries and keys into weights: softmax(scale · row) up to the diagonal, else 0."""
    documents, time, _ = x.shape
    zero, one, scale = x.dtype.type(0), x.dtype.type(1), x.dtype.type(scale)
    for b in range(documents):
        for t in range(time):
            row, most, total = x[b, t], x[b, t, 0], zero
            for s in range(t + 1):
                most = max(most, row[s])
            for s in range(t + 1):
                row[s] = decay((row[s] - most) * scale)
                total += row[s]
            share = one / total
            for s in range(t + 1):
                row[s] *= share
            row[t + 1 :] = zero


@njit(cache=True, fastmath=FAST, error_model="numpy")
def softmax_backward(weights, g, scale):
    """Turn the gradient of the weights into that of the products."""
    documents, time, _ = weights.shape
    zero, scale = g.dtype.type(0), g.dtype.type(scale)
    for b in range(documents):
        for t in range(time):
            row, up, mean = weights[b, t], g[b, t], zero
            for s in range(t + 1):
                mean += row[s] * up[s]
            for s in range(t + 1):
                up[s] = row[s] * (up[s] - mean) * scale
            up[t + 1 :] = zero


@njit(cache=True, fastmath=FAST, error_model="numpy")
def read_forward(q, x, at, scale, shares, y):
    """Write `shares`, softmax(scale q·x) up to the token that reads, and `y`, the mean of x by them."""
    heads, reads, channels = q.shape
    zero, one, scale, each = x.dtype.type(0), x.dtype.type(1), x.dtype.type(scale), at.shape[1]
    for h in range(heads):
        for n in range(reads):
            past, last = x[n // each], at[n // each, n % each]
            ask, row, out, most, total = q[h, n], shares[h, n], y[h, n], x.dtype.type(-np.inf), zero
            for s in range(last + 1):
                product = zero
                for c in range(channels):
                    product += ask[c] * past[s, c]
                row[s] = product
                most = max(most, product)
            for s in range(last + 1):
                row[s] = decay((row[s] - most) * scale)
                total += row[s]
            out[:] = zero
            for s in range(last + 1):
                row[s] *= one / total
                for c in range(channels):
                    out[c] += row[s] * past[s, c]


@njit(cache=True, fastmath=FAST, error_model="numpy")
def read_backward(q, x, at, scale, shares, g, gq, gx):
    """Write `gq` and add to `gx`, given `g`, the gradient of the means."""
    heads, reads, channels = q.shape
    zero, scale, each = x.dtype.type(0), x.dtype.type(scale), at.shape[1]
    for h in range(heads):
        for n in range(reads):
            past, into, last = x[n // each], gx[n // each], at[n // each, n % each]
            ask, row, up, down, mean = q[h, n], shares[h, n], g[h, n], gq[h, n], zero
            for c in range(channels):
                down[c] = zero
            slopes = np.empty(last + 1, x.dtype)
            for s in range(last + 1):
                product = zero
                for c in range(channels):
                    product += up[c] * past[s, c]
                slopes[s] = product
                mean += row[s] * product
            for s in range(last + 1):
                share, slope = row[s], row[s] * (slopes[s] - mean) * scale
                for c in range(channels):
                    down[c] += slope * past[s, c]
                    into[s, c] += slope * ask[c] + share * up[c]
