"""y ∘ silu(z) of flat arrays, and its gradients."""

from numba import njit

from mecheval.models.ops.kernels.exponential import exp


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def forward(y, z, out):
    """Write `out`."""
    one = y.dtype.type(1)
    for i in range(len(y)):
        out[i] = y[i] * z[i] / (one + exp(-z[i]))


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def backward(y, z, g, gy, gz):
    """Write both gradients, given `g`, the gradient of the product."""
    one = y.dtype.type(1)
    for i in range(len(y)):
        open_ = one / (one + exp(-z[i]))
        gy[i] = g[i] * z[i] * open_
        gz[i] = g[i] * y[i] * open_ * (one + z[i] * (one - open_))
