"""Σ_n B_n C_{n+l} for few l, and its gradients.

What is 0 stays 0: AdamW divides by a gradient's size and would move weights by the rounding errors
of an FFT.
"""

import numpy as np
from numba import njit


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def forward(B, C, k):
    """Write `k`, a row for each channel; the many terms are summed in double precision."""
    channels, d_state = B.shape
    lags = k.shape[1]
    c, sums = np.zeros(d_state + lags), np.empty(lags)
    for channel in range(channels):
        c[:d_state], sums[:] = C[channel], 0
        for n in range(d_state):
            b, window = np.float64(B[channel, n]), c[n:]
            for lag in range(lags):
                sums[lag] += b * window[lag]
        k[channel] = sums


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def backward(B, C, g, gB, gC):
    """Write `gB` and `gC`, given `g`, the gradient of k."""
    channels, d_state = B.shape
    for channel in range(channels):
        b, c, to_b, to_c = B[channel], C[channel], gB[channel], gC[channel]
        to_b[:], to_c[:] = 0, 0
        for lag in range(g.shape[1]):
            up, later, to_later = g[channel, lag], c[lag:], to_c[lag:]
            for n in range(d_state - lag):
                to_b[n] += up * later[n]
            for n in range(d_state - lag):
                to_later[n] += up * b[n]
