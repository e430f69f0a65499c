"""The softmax of causal attention and its gradient, both in place.

The future is skipped, and nothing between the products is written twice.
"""

from numba import njit

from mecheval.models.ops.kernels.exponential import decay

FAST = {"reassoc", "contract"}  # sums over sources may be reordered


@njit(cache=True, fastmath=FAST, error_model="numpy")
def forward(x, scale):
    """Turn products of queries and keys into weights: softmax(scale · row) up to the diagonal, else 0."""
    documents, time, _ = x.shape
    zero, one, scale = x.dtype.type(0), x.dtype.type(1), x.dtype.type(scale)
    for b in range(documents):
        for t in range(time):
            row, most, total = x[b, t], x[b, t, 0], zero
            for s in range(t + 1):
                most = max(most, row[s])
            for s in range(t + 1):
                row[s] = decay((row[s] - most) * scale)
                total += row[s]
            share = one / total
            for s in range(t + 1):
                row[s] *= share
            row[t + 1 :] = zero


@njit(cache=True, fastmath=FAST, error_model="numpy")
def backward(weights, g, scale):
    """Turn the gradient of the weights into that of the products."""
    documents, time, _ = weights.shape
    zero, scale = g.dtype.type(0), g.dtype.type(scale)
    for b in range(documents):
        for t in range(time):
            row, up, mean = weights[b, t], g[b, t], zero
            for s in range(t + 1):
                mean += row[s] * up[s]
            for s in range(t + 1):
                up[s] = row[s] * (up[s] - mean) * scale
            up[t + 1 :] = zero
