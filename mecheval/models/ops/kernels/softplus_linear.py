"""softplus(W x + b) for few inputs x, and its gradients.

A matrix product with four columns would run at a twentieth of the machine's rate. Rows of channels
are the vectors, with GROUP inputs in one loop over them: sums that go through memory take twice as
long. `weight` has a row for each input, in whole groups; all groups but the last are summed first.
"""

import numpy as np
from numba import njit

from mecheval.models.ops.kernels.exponential import decay, exp, log1p

GROUP = 4  # inputs in one loop


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def forward(x, weight, bias, y):
    """Write `y`."""
    batch, time, inputs = x.shape
    channels, zero, i = weight.shape[1], x.dtype.type(0), inputs - GROUP
    w0, w1, w2, w3 = weight[i], weight[i + 1], weight[i + 2], weight[i + 3]
    row = np.empty(channels, x.dtype)
    before = row if i else bias
    for b in range(batch):
        for t in range(time):
            if i:
                _sum_groups(x[b, t, :i], weight, bias, row)
            x0, x1, x2, x3 = x[b, t, i], x[b, t, i + 1], x[b, t, i + 2], x[b, t, i + 3]
            out = y[b, t]
            for c in range(channels):
                v = before[c] + w0[c] * x0 + w1[c] * x1 + w2[c] * x2 + w3[c] * x3
                out[c] = max(v, zero) + log1p(decay(-abs(v)))


@njit(cache=True, fastmath={"reassoc", "contract"}, error_model="numpy")
def backward(x, weight, bias, g, gx, gweight, gbias):
    """Write `gx` and add to the others, given `g`, the gradient of y."""
    batch, time, inputs = x.shape
    channels, zero, one, last = weight.shape[1], x.dtype.type(0), x.dtype.type(1), inputs - GROUP
    row, gv = np.empty(channels, x.dtype), np.empty(channels, x.dtype)
    before = row if last else bias
    for b in range(batch):
        for t in range(time):
            if last:
                _sum_groups(x[b, t, :last], weight, bias, row)
            x0, x1, x2, x3 = x[b, t, last], x[b, t, last + 1], x[b, t, last + 2], x[b, t, last + 3]
            w0, w1, w2, w3 = weight[last], weight[last + 1], weight[last + 2], weight[last + 3]
            up = g[b, t]
            for c in range(channels):
                v = before[c] + w0[c] * x0 + w1[c] * x1 + w2[c] * x2 + w3[c] * x3
                gv[c] = up[c] / (one + exp(-v))
            for c in range(channels):
                gbias[c] += gv[c]
            for i in range(inputs):
                value, row_gradient = x[b, t, i], gweight[i]
                for c in range(channels):
                    row_gradient[c] += value * gv[c]
            for i in range(0, inputs, GROUP):
                w0, w1, w2, w3 = weight[i], weight[i + 1], weight[i + 2], weight[i + 3]
                g0, g1, g2, g3 = zero, zero, zero, zero
                for c in range(channels):
                    g0 += w0[c] * gv[c]
                    g1 += w1[c] * gv[c]
                    g2 += w2[c] * gv[c]
                    g3 += w3[c] * gv[c]
                gx[b, t, i], gx[b, t, i + 1], gx[b, t, i + 2], gx[b, t, i + 3] = g0, g1, g2, g3


@njit(cache=True, fastmath={"contract"})
def _sum_groups(x, weight, bias, row):
    row[:] = bias
    for i in range(0, len(x), GROUP):
        x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
        w0, w1, w2, w3 = weight[i], weight[i + 1], weight[i + 2], weight[i + 3]
        for c in range(len(row)):
            row[c] += w0[c] * x0 + w1[c] * x1 + w2[c] * x2 + w3[c] * x3
