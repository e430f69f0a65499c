"""A short convolution followed by silu, and its gradients.

Rows of channels are the vectors, with all taps in one loop over them: sums that go through memory
take twice as long. `taps` has four rows, the one on x_t first; those from `width` on are zeros and
multiply zeros.
"""

import numpy as np
from numba import njit

from mecheval.models.ops.kernels.exponential import exp


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def forward(x, taps, bias, width, y):
    """Write `y`."""
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
    """Write `gx` and add to the others, given `g`, the gradient of y."""
    batch, time, channels = x.shape
    one, none = x.dtype.type(1), np.zeros(channels, x.dtype)
    w0, w1, w2, w3 = taps[0], taps[1], taps[2], taps[3]
    gw0, gw1, gw2, gw3 = gtaps[0], gtaps[1], gtaps[2], gtaps[3]
    # gradients of the convolution, followed by zeros
    gv = np.zeros((time + len(taps) - 1, channels), x.dtype)
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
