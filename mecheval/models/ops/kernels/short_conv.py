"""A short convolution and the silu behind it, and their gradients, compiled for one thread.

Rows of channels are the vectors, all taps in one loop over them: sums that go through memory take twice as long. `taps`
has TAPS rows, the one on x_t first; those from `width` on are zeros, and so is what they stand on.
"""

import numpy as np
from numba import njit

from mecheval.models.ops.kernels.exponential import exp
from mecheval.models.ops.short_conv import TAPS


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def forward(x, taps, bias, width, y):
    """Writes `y`."""
    batch, time, channels = x.shape
    one, none = x.dtype.type(1), np.zeros(channels, x.dtype)
    w0, w1, w2, w3 = taps[0], taps[1], taps[2], taps[3]
    for b in range(batch):
        x0, x1, x2, x3 = none, none, none, none
        for t in range(time):
            x0, x1, x2, x3 = x[b, t], x0, x1, x2
            if width == 1:
                x1 = none
            elif width == 2:
                x2 = none
            elif width == 3:
                x3 = none
            out = y[b, t]
            for c in range(channels):
                v = bias[c] + w0[c] * x0[c] + w1[c] * x1[c] + w2[c] * x2[c] + w3[c] * x3[c]
                out[c] = v / (one + exp(-v))


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def backward(x, taps, bias, width, g, gx, gtaps, gbias):
    """Writes `gx` and adds to the others, given `g`, the gradient of y."""
    batch, time, channels = x.shape
    one, none = x.dtype.type(1), np.zeros(channels, x.dtype)
    w0, w1, w2, w3 = taps[0], taps[1], taps[2], taps[3]
    gw0, gw1, gw2, gw3 = gtaps[0], gtaps[1], gtaps[2], gtaps[3]
    gv = np.zeros((time + TAPS - 1, channels), x.dtype)  # of the convolution, and zeros behind it
    for b in range(batch):
        x0, x1, x2, x3 = none, none, none, none
        for t in range(time):
            x0, x1, x2, x3 = x[b, t], x0, x1, x2
            if width == 1:
                x1 = none
            elif width == 2:
                x2 = none
            elif width == 3:
                x3 = none
            up, row = g[b, t], gv[t]
            for c in range(channels):
                v = bias[c] + w0[c] * x0[c] + w1[c] * x1[c] + w2[c] * x2[c] + w3[c] * x3[c]
                open_ = one / (one + exp(-v))
                row[c] = up[c] * open_ * (one + v * (one - open_))
            for c in range(channels):
                gbias[c] += row[c]
            for c in range(channels):
                gw0[c] += row[c] * x0[c]
                gw1[c] += row[c] * x1[c]
            for c in range(channels):
                gw2[c] += row[c] * x2[c]
                gw3[c] += row[c] * x3[c]
        for t in range(time):
            down, g0, g1, g2, g3 = gx[b, t], gv[t], gv[t + 1], gv[t + 2], gv[t + 3]
            for c in range(channels):
                down[c] = w0[c] * g0[c] + w1[c] * g1[c] + w2[c] * g2[c] + w3[c] * g3[c]
