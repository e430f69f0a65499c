"""Re Σ_n w_n r_n^l for every l, and its gradients, by the recurrence in double precision.

Pairs are the vectors, one channel at a time, real and imaginary parts separate.
"""

import numpy as np
from numba import njit


@njit(cache=True, fastmath={"reassoc", "contract"}, error_model="numpy")
def forward(w, r, k):
    """Write `k`, a row for each channel."""
    channels, pairs = w.shape
    for channel in range(channels):
        x, y = w[channel].real.copy(), w[channel].imag.copy()
        u, v = r[channel].real.copy(), r[channel].imag.copy()
        for lag in range(k.shape[1]):
            total = 0.0
            for n in range(pairs):
                total += x[n]
                x[n], y[n] = x[n] * u[n] - y[n] * v[n], x[n] * v[n] + y[n] * u[n]
            k[channel, lag] = total


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def backward(w, r, g, gw, gr):
    """Write `gw` and `gr`, given `g`, the gradient of k.

    Σ_l g_l r^l and its derivative are computed by Horner's rule; torch expects conjugates.
    """
    channels, pairs = w.shape
    for channel in range(channels):
        u, v = r[channel].real.copy(), r[channel].imag.copy()
        x, y, dx, dy = np.zeros(pairs), np.zeros(pairs), np.zeros(pairs), np.zeros(pairs)
        for lag in range(g.shape[1] - 1, -1, -1):
            up = g[channel, lag]
            for n in range(pairs):
                dx[n], dy[n] = (
                    x[n] + dx[n] * u[n] - dy[n] * v[n],
                    y[n] + dx[n] * v[n] + dy[n] * u[n],
                )
                x[n], y[n] = up + x[n] * u[n] - y[n] * v[n], x[n] * v[n] + y[n] * u[n]
        gw[channel] = x - 1j * y
        gr[channel] = np.conj(w[channel] * (dx + 1j * dy))
