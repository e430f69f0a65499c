"""Loops over tokens, each treated separately; torch's read the stream once for every operation."""

import math

import numpy as np
from numba import njit

from mecheval.models.ops.kernels import FAST, GROUP, four
from mecheval.models.ops.kernels.exponential import decay, exp, in_single, log1p

DENSITY, HALF_ROOT = 1 / math.sqrt(2 * math.pi), math.sqrt(0.5)
# 1 − Φ(z) = exp(−z²/2) t p(t) for z ≥ 0, with t = 1 / (1 + 0.275 z) and p of degree 5 fitted for the
# least error (5e-9)
NEAR, HALF, ONE, DENSITY32 = np.array([0.275, 0.5, 1, DENSITY], np.float32)
P0, P1, P2, P3, P4, P5 = np.array(
    [0.11780935, 0.04211088, 0.33393377, -0.3309952, 0.4519998, -0.1148586], np.float32
)


@njit(cache=True, fastmath=FAST, error_model="numpy")
def norm_forward(x, weight, y, scale, eps):
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
def norm_backward(x, weight, scale, g, gx, gweight):
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


def normal(x):
    """Return Φ(x) and the density at x."""


@in_single(normal, lambda x: (0.5 * math.erfc(-x * HALF_ROOT), math.exp(-0.5 * x * x) * DENSITY))
def normal32(x):
    fall, t = decay(-HALF * x * x), ONE / (ONE + NEAR * abs(x))
    beyond = fall * t * (((((P5 * t + P4) * t + P3) * t + P2) * t + P1) * t + P0)
    return (beyond if x < 0 else ONE - beyond), fall * DENSITY32


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def gelu_forward(x, bias, slope):
    """Turn x into gelu(x + bias) in place; write its slope if `slope` has rows."""
    rows, channels = x.shape
    for r in range(rows):
        row = x[r]
        if len(slope):
            up = slope[r]
            for c in range(channels):
                value = row[c] + bias[c]
                below, density = normal(value)
                row[c] = value * below
                up[c] = below + value * density
        else:
            for c in range(channels):
                value = row[c] + bias[c]
                row[c] = value * normal(value)[0]


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def gelu_backward(g, slope, gbias):
    """Turn the gradient of gelu into that of its argument in place, and add it to `gbias`."""
    rows, channels = g.shape
    for r in range(rows):
        row, up = g[r], slope[r]
        for c in range(channels):
            row[c] *= up[c]
            gbias[c] += row[c]


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def gate_forward(y, z, out):
    """Write `out`, y ∘ silu(z)."""
    one, y, z, out = y.dtype.type(1), y.reshape(-1), z.reshape(-1), out.reshape(-1)
    for i in range(len(y)):
        out[i] = y[i] * z[i] / (one + exp(-z[i]))


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def gate_backward(y, z, g, gy, gz):
    """Write both gradients, given `g`, the gradient of the product."""
    one, y, z, g = y.dtype.type(1), y.reshape(-1), z.reshape(-1), g.reshape(-1)
    gy, gz = gy.reshape(-1), gz.reshape(-1)
    for i in range(len(y)):
        open_ = one / (one + exp(-z[i]))
        gy[i] = g[i] * z[i] * open_
        gz[i] = g[i] * y[i] * open_ * (one + z[i] * (one - open_))


# softplus(W x + b): a matrix product with four columns would run at a twentieth of the machine's
# rate. Rows of channels are the vectors, with a GROUP of inputs in one loop over them: sums that go
# through memory take twice as long. `weight` has a row for each input, in whole groups; all groups but the last are
# summed first.


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def softplus_forward(x, weight, bias, y):
    """Write `y`."""
    batch, time, inputs = x.shape
    channels, zero, last = weight.shape[1], x.dtype.type(0), inputs - GROUP
    row = np.empty_like(bias)
    before = row if last else bias
    w0, w1, w2, w3 = four(weight, last)
    for b in range(batch):
        for t in range(time):
            if last:
                _sum_groups(x[b, t, :last], weight, bias, row)
            out, (x0, x1, x2, x3) = y[b, t], four(x[b, t], last)
            for c in range(channels):
                v = before[c] + w0[c] * x0 + w1[c] * x1 + w2[c] * x2 + w3[c] * x3
                out[c] = max(v, zero) + log1p(decay(-abs(v)))


@njit(cache=True, fastmath=FAST, error_model="numpy")
def softplus_backward(x, weight, bias, g, gx, gweight, gbias):
    """Write `gx` and add to the others, given `g`, the gradient of y."""
    batch, time, inputs = x.shape
    channels, zero, one, last = weight.shape[1], x.dtype.type(0), x.dtype.type(1), inputs - GROUP
    row, gv = np.empty_like(bias), np.empty_like(bias)
    before = row if last else bias
    for b in range(batch):
        for t in range(time):
            if last:
                _sum_groups(x[b, t, :last], weight, bias, row)
            up, (x0, x1, x2, x3) = g[b, t], four(x[b, t], last)
            w0, w1, w2, w3 = four(weight, last)
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
                w0, w1, w2, w3 = four(weight, i)
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
        x0, x1, x2, x3 = four(x, i)
        w0, w1, w2, w3 = four(weight, i)
        for c in range(len(row)):
            row[c] += w0[c] * x0 + w1[c] * x1 + w2[c] * x2 + w3[c] * x3
