"""The linear scan, its reads at one token, and their gradients.

Rows of channels are the vectors. The states that the gradients need are computed again.
"""

import numpy as np
from numba import njit

from mecheval.models.ops.kernels import FAST


@njit(cache=True, fastmath=FAST, error_model="numpy")
def forward(a, x, h):
    """Write every state."""
    batch, time, channels = x.shape
    for b in range(batch):
        before = np.zeros(channels, x.dtype)
        for t in range(time):
            kept, written, after = a[b, t], x[b, t], h[b, t]
            for c in range(channels):
                after[c] = kept[c] * before[c] + written[c]
            before = after


@njit(cache=True, fastmath=FAST, error_model="numpy")
def backward(a, x, g, ga, gx):
    """Write both gradients, given `g`, that of the states: gh_t = g_t + a_{t+1} ∘ gh_{t+1}."""
    batch, time, channels = x.shape
    states, gh = np.zeros((time + 1, channels), x.dtype), np.empty(channels, x.dtype)
    for b in range(batch):
        _fill(a[b], x[b], states, time - 1)
        gh[:] = 0
        for t in range(time - 1, -1, -1):
            up, kept, before, gkept, gwritten = g[b, t], a[b, t], states[t], ga[b, t], gx[b, t]
            for c in range(channels):
                total = gh[c] + up[c]
                gwritten[c] = total
                gkept[c] = total * before[c]
                gh[c] = total * kept[c]


@njit(cache=True, fastmath=FAST, error_model="numpy")
def read_forward(a, x, at, h):
    """Write the state after the token `at` of each row."""
    batch, _, channels = x.shape
    h[:] = 0
    for b in range(batch):
        state = h[b]
        for t in range(at[b] + 1):
            kept, written = a[b, t], x[b, t]
            for c in range(channels):
                state[c] = kept[c] * state[c] + written[c]


@njit(cache=True, fastmath=FAST, error_model="numpy")
def read_backward(a, x, at, g, ga, gx):
    """Write both gradients, given `g`, that of the states that are read."""
    batch, time, channels = x.shape
    states, gh = np.zeros((time + 1, channels), x.dtype), np.empty(channels, x.dtype)
    for b in range(batch):
        ga[b, at[b] + 1 :] = 0
        gx[b, at[b] + 1 :] = 0
        _fill(a[b], x[b], states, at[b])
        gh[:] = g[b]
        for t in range(at[b], -1, -1):
            kept, before, gkept, gwritten = a[b, t], states[t], ga[b, t], gx[b, t]
            for c in range(channels):
                gwritten[c] = gh[c]
                gkept[c] = gh[c] * before[c]
                gh[c] *= kept[c]


@njit
def _fill(a, x, states, last):
    """Write the states up to token `last`; row t is the one before token t."""
    for t in range(last + 1):
        kept, written, before, after = a[t], x[t], states[t], states[t + 1]
        for c in range(len(after)):
            after[c] = kept[c] * before[c] + written[c]
