"""Filters of state space models and their gradients."""

import numpy as np
from numba import njit

from mecheval.models.ops.kernels import FAST


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def correlate(B, C, k):
    """Write k_l = Σ_n B_n C_{n+l} for few l, a row for each channel, summed in double precision.

    What is 0 stays 0: AdamW divides by a gradient's size and would move weights by the rounding
    errors of an FFT.
    """
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
def correlate_backward(B, C, g, gB, gC):
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


@njit(cache=True, fastmath=FAST, error_model="numpy")
def power_sums(w, r, k):
    """Write k_l = Re Σ_n w_n r_n^l, a row for each channel, by the recurrence in double precision.

    Pairs are the vectors, one channel at a time, real and imaginary parts separate.
    """
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
def power_sums_backward(w, r, g, gw, gr):
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
