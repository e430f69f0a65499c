"""Attention of single tokens and its gradients, compiled for one thread."""

import numpy as np
from numba import njit

from mecheval.models.ops.kernels.exponential import decay

FAST = {"reassoc", "contract"}  # sums over channels and sources may change their order


@njit(cache=True, fastmath=FAST, error_model="numpy")
def forward(q, x, at, scale, weights, y):
    """Writes the weights of the tokens up to the one that asks, 0 behind it, and their mean."""
    heads, documents, reads, channels = q.shape
    time, zero, one, scale = x.shape[1], x.dtype.type(0), x.dtype.type(1), x.dtype.type(scale)
    for h in range(heads):
        for b in range(documents):
            for r in range(reads):
                ask, row, out, last = q[h, b, r], weights[h, b, r], y[h, b, r], at[b, r]
                most, total = x.dtype.type(-np.inf), zero
                for s in range(last + 1):
                    seen, product = x[b, s], zero
                    for c in range(channels):
                        product += ask[c] * seen[c]
                    row[s] = product
                    most = max(most, product)
                for s in range(last + 1):
                    row[s] = decay((row[s] - most) * scale)
                    total += row[s]
                share = one / total
                out[:] = zero
                for s in range(last + 1):
                    row[s] *= share
                    seen, weight = x[b, s], row[s]
                    for c in range(channels):
                        out[c] += weight * seen[c]
                for s in range(last + 1, time):
                    row[s] = zero


@njit(cache=True, fastmath=FAST, error_model="numpy")
def backward(q, x, at, scale, weights, g, gq, gx):
    """Writes `gq` and adds to `gx`, given `g`, the gradient of the means."""
    heads, documents, reads, channels = q.shape
    zero, scale = x.dtype.type(0), x.dtype.type(scale)
    for h in range(heads):
        for b in range(documents):
            for r in range(reads):
                ask, row, up, down, last = q[h, b, r], weights[h, b, r], g[h, b, r], gq[h, b, r], at[b, r]
                mean = zero
                for s in range(last + 1):
                    seen, product = x[b, s], zero
                    for c in range(channels):
                        product += up[c] * seen[c]
                    mean += row[s] * product
                down[:] = zero
                for s in range(last + 1):
                    seen, into, weight, product = x[b, s], gx[b, s], row[s], zero
                    for c in range(channels):
                        product += up[c] * seen[c]
                    slope = weight * (product - mean) * scale
                    for c in range(channels):
                        down[c] += slope * seen[c]
                        into[c] += slope * ask[c] + weight * up[c]
