"""A short convolution and the silu behind it, and their gradients, compiled for one thread.

Rows of channels are the vectors. `taps` has the one on x_t first, a row each.
"""

import numpy as np
from numba import njit

from mecheval.models.ops.kernels.exponential import exp


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def forward(x, taps, bias, y):
    """Writes `y`."""
    batch, time, channels = x.shape
    width, one = taps.shape[0], x.dtype.type(1)
    row = np.empty(channels, x.dtype)
    for b in range(batch):
        for t in range(time):
            row[:] = bias
            for i in range(min(width, t + 1)):
                tap, here = taps[i], x[b, t - i]
                for c in range(channels):
                    row[c] += tap[c] * here[c]
            out = y[b, t]
            for c in range(channels):
                out[c] = row[c] / (one + exp(-row[c]))


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def backward(x, taps, bias, g, gx, gtaps, gbias):
    """Writes `gx` and adds to the others, given `g`, the gradient of y."""
    batch, time, channels = x.shape
    width, one = taps.shape[0], x.dtype.type(1)
    row = np.empty(channels, x.dtype)
    for b in range(batch):
        for t in range(time):
            row[:] = bias
            for i in range(min(width, t + 1)):
                tap, here = taps[i], x[b, t - i]
                for c in range(channels):
                    row[c] += tap[c] * here[c]
            out = g[b, t]
            for c in range(channels):
                open_ = one / (one + exp(-row[c]))
                row[c] = out[c] * open_ * (one + row[c] * (one - open_))
            for c in range(channels):
                gbias[c] += row[c]
            gx[b, t] = 0
            for i in range(min(width, t + 1)):
                tap, here, ghere, gtap = taps[i], x[b, t - i], gx[b, t - i], gtaps[i]
                for c in range(channels):
                    ghere[c] += tap[c] * row[c]
                for c in range(channels):
                    gtap[c] += row[c] * here[c]
