"""Attention of single tokens over those before them, and its gradients.

Keys and values are the stream itself.
"""

import numpy as np
from numba import njit

from mecheval.models.ops.kernels.exponential import decay

FAST = {"reassoc", "contract"}  # sums over channels and sources may be reordered


@njit(cache=True, fastmath=FAST, error_model="numpy")
def forward(q, x, at, scale, shares, y):
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
def backward(q, x, at, scale, shares, g, gq, gx):
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
