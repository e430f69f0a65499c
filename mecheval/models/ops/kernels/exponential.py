"""exp, decay and log1p of a scalar in its own precision, in a form that LLVM vectorises."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

# exp(r) = 1 + r + r² q(r) for |r| ≤ ln(2)/2, with q of degree 4 fitted for the least relative error
# (3e-9). The leading ones are exact, so that dt = 0 keeps the state to the bit and slow decays stay
# accurate over many steps.
Q0, Q1, Q2, Q3, Q4 = np.array(
    [0.49999994, 0.16666521, 0.04166839, 0.008368745, 0.001381454], np.float32
)
ONE, LOG2_E = np.float32(1), np.float32(math.log2(math.e))
# ln 2 in two parts; the first has so few bits that its products with integers below 2⁸ are exact
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(math.log(2) - 0.693359375)
# Added to |x| < 2²², it rounds to an integer k and leaves k + 127, the exponent of 2ᵏ, in the
# lowest bits.
ROUND, EXPONENT = np.float32(1.5 * 2**23 + 127), np.int32(23)
# Beyond these 2ᵏ has no normal exponent: k = −127 gives 0 and k = 128 infinity.
LOWEST, HIGHEST = np.float32(-88), np.float32(88.8)
# The same without the 127: k, added to the exponent bits of a number, multiplies it by 2ᵏ.
WHOLE, LN2 = np.float32(1.5 * 2**23), np.float32(math.log(2))
# The same with q of degree 3, which errs by 1e-7, as much as the rounding.
D0, D1, D2, D3 = np.array([0.49999231, 0.16667114, 0.041890115, 0.0083125243], np.float32)
FADED = np.float32(-87.3)  # its exponential is the smallest normal number

# log(1 + x) = x p(x) for 0 ≤ x ≤ 1, with p of degree 8 fitted for the least relative error (3e-8)
L0, L1, L2, L3, L4, L5, L6, L7, L8 = np.array(
    [
        0.99999994,
        -0.49999493,
        0.33319098,
        -0.24842985,
        0.19106014,
        -0.13663258,
        0.078226045,
        -0.029505279,
        0.0052327011,
    ],
    np.float32,
)


def in_single(stub: Callable[..., Any], double: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `stub` as the decorated function for float32, and as `double` for other types."""

    def register(single):
        # `reassoc` would undo the rounding and join the two parts of ln 2, hence flags of its own
        @overload(stub, jit_options={"fastmath": {"contract"}})
        def choose(x):
            return single if x == types.float32 else double

        return single

    return register


def exp(x):
    """Return exp(x); numba's own vectorises only where SVML is installed."""


@in_single(exp, double=lambda x: math.exp(x))
def exp32(x):
    x = LOWEST if x < LOWEST else x  # NaN is neither and passes
    x = HIGHEST if x > HIGHEST else x
    shifted = np.float32(x * LOG2_E + ROUND)
    k = shifted - ROUND
    r = x - k * LN2_HIGH - k * LN2_LOW
    q = (((Q4 * r + Q3) * r + Q2) * r + Q1) * r + Q0
    power = np.int32(shifted.view(np.int32) << EXPONENT).view(np.float32)
    return ((q * r + ONE) * r + ONE) * power


def decay(x):
    """Return exp(x) in half of its time, for x with a finite one, and never quite 0."""


@in_single(decay, double=lambda x: math.exp(x))
def decay32(x):
    x = FADED if x < FADED else x
    shifted = np.float32(x * LOG2_E + WHOLE)
    k = shifted - WHOLE
    r = x - k * LN2  # fused, so that one part of ln 2 is exact enough
    q = ((D3 * r + D2) * r + D1) * r + D0
    power = np.float32((q * r + ONE) * r + ONE)
    exponent = np.int32(shifted.view(np.int32) << EXPONENT)
    return np.int32(power.view(np.int32) + exponent).view(np.float32)


def log1p(x):
    """Return log(1 + x) for x from 0 to 1."""


@in_single(log1p, double=lambda x: math.log1p(x))
def log1p32(x):
    high = (((L8 * x + L7) * x + L6) * x + L5) * x + L4
    return x * ((((high * x + L3) * x + L2) * x + L1) * x + L0)
