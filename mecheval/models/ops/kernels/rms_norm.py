"""RMSNorm and its gradients; torch's reads the stream once for every operation."""

import numpy as np
from numba import njit

FAST = {"reassoc", "contract"}  # sums over channels may be reordered


@njit(cache=True, fastmath=FAST, error_model="numpy")
def forward(x, weight, y, scale, eps):
    """Write `y` and, for each row, the `scale` that its numbers were multiplied by."""
    rows, channels = x.shape
    one = x.dtype.type(1)
    for r in range(rows):
        row, out, total = x[r], y[r], x.dtype.type(0)
        for c in range(channels):
            total += row[c] * row[c]
        s = one / np.sqrt(total / x.dtype.type(channels) + x.dtype.type(eps))
        for c in range(channels):
            out[c] = row[c] * s * weight[c]
        scale[r] = s


@njit(cache=True, fastmath=FAST, error_model="numpy")
def backward(x, weight, scale, g, gx, gweight):
    """Write `gx` and add to `gweight`, given `g`, the gradient of y."""
    rows, channels = x.shape
    for r in range(rows):
        row, up, down, s, total = x[r], g[r], gx[r], scale[r], x.dtype.type(0)
        for c in range(channels):
            total += up[c] * weight[c] * row[c]
        shared = total * s * s * s / x.dtype.type(channels)
        for c in range(channels):
            down[c] = up[c] * weight[c] * s - row[c] * shared
        for c in range(channels):
            gweight[c] += up[c] * row[c] * s
