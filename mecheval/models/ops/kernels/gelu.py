"""GELU with its slope, and its gradient."""

import math

import numpy as np
from numba import njit, types
from numba.extending import overload

from mecheval.models.ops.kernels.exponential import decay

DENSITY, HALF_ROOT = 1 / math.sqrt(2 * math.pi), math.sqrt(0.5)
# 1 − Φ(z) = exp(−z²/2) t p(t) for z ≥ 0, with t = 1 / (1 + 0.275 z) and p of degree 5 fitted for the
# least error (5e-9)
NEAR, HALF, ONE, DENSITY32 = np.array([0.275, 0.5, 1, DENSITY], np.float32)
P0, P1, P2, P3, P4, P5 = np.array(
    [0.11780935, 0.04211088, 0.33393377, -0.3309952, 0.4519998, -0.1148586], np.float32
)


def normal(x):
    """Return Φ(x) and the density at x, compiled as `_normal` in the precision of x."""


@overload(normal, jit_options={"fastmath": {"contract"}})
def _normal(x):
    if x != types.float32:
        return lambda x: (0.5 * math.erfc(-x * HALF_ROOT), math.exp(-0.5 * x * x) * DENSITY)

    def normal32(x):
        fall, t = decay(-HALF * x * x), ONE / (ONE + NEAR * abs(x))
        beyond = fall * t * (((((P5 * t + P4) * t + P3) * t + P2) * t + P1) * t + P0)
        return (beyond if x < 0 else ONE - beyond), fall * DENSITY32

    return normal32


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def forward(x, bias, slope):
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
def backward(g, slope, gbias):
    """Turn the gradient of gelu into that of its argument in place, and add it to `gbias`."""
    rows, channels = g.shape
    for r in range(rows):
        row, up = g[r], slope[r]
        for c in range(channels):
            row[c] *= up[c]
            gbias[c] += row[c]
