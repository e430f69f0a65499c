"""A short convolution followed by silu, and its gradients.

Rows of channels are the vectors, with all four taps in one loop over them: sums that go through
memory take twice as long. Taps that are missing are zeros and multiply zeros.
"""

import numpy as np
from numba import njit

from mecheval.models.ops.kernels import GROUP, four
from mecheval.models.ops.kernels.exponential import exp


@njit(inline="always")
def _shift(now, x0, x1, x2, width, none):
    """Return the rows that the taps multiply, after the next one; `none` for missing taps."""
    return (
        now,
        x0 if width > 1 else none,
        x1 if width > 2 else none,
        x2 if width > 3 else none,
    )


@njit
def _all_taps(taps):
    """Return four rows of taps."""
    rows = np.zeros((GROUP, taps.shape[1]), taps.dtype)
    rows[: len(taps)] = taps
    return rows


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def forward(x, taps, bias, y):
    """Write `y`; `taps` has a row for each of at most four taps, the one on x_t first."""
    batch, time, channels = x.shape
    one, none = x.dtype.type(1), np.zeros(channels, x.dtype)
    w0, w1, w2, w3 = four(_all_taps(taps), 0)
    for b in range(batch):
        x0, x1, x2, x3 = none, none, none, none
        for t in range(time):
            x0, x1, x2, x3 = _shift(x[b, t], x0, x1, x2, len(taps), none)
            out = y[b, t]
            for c in range(channels):
                v = bias[c] + w0[c] * x0[c] + w1[c] * x1[c] + w2[c] * x2[c] + w3[c] * x3[c]
                out[c] = v / (one + exp(-v))


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def backward(x, taps, bias, g, gx, gtaps, gbias):
    """Write `gx` and add to the others, given `g`, the gradient of y."""
    batch, time, channels = x.shape
    one, none = x.dtype.type(1), np.zeros(channels, x.dtype)
    w0, w1, w2, w3 = four(_all_taps(taps), 0)
    sums = _all_taps(gtaps)
    gw0, gw1, gw2, gw3 = four(sums, 0)
    # gradients of the convolution, followed by zeros
    gv = np.zeros((time + GROUP - 1, channels), x.dtype)
    for b in range(batch):
        x0, x1, x2, x3 = none, none, none, none
        for t in range(time):
            x0, x1, x2, x3 = _shift(x[b, t], x0, x1, x2, len(taps), none)
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
            down, (g0, g1, g2, g3) = gx[b, t], four(gv, t)
            for c in range(channels):
                down[c] = w0[c] * g0[c] + w1[c] * g1[c] + w2[c] * g2[c] + w3[c] * g3[c]
    gtaps[:] = sums[: len(gtaps)]
