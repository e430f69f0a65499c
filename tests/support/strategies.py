"""Random inputs of a selective scan, for any shape and decay."""

import torch
from hypothesis import strategies as st

# batch, time, d_inner, d_state; kernels take 32, 64 or 128 channels and four states at a time
SHAPES = st.tuples(
    st.integers(1, 3),
    st.one_of(st.integers(1, 7), st.sampled_from([8, 16, 17, 33])),
    st.one_of(st.integers(1, 20), st.sampled_from([63, 64, 65, 100, 127, 128, 129, 192])),
    st.integers(1, 17),
)
# the powers of ten between which dt·|A| lies
DECAYS = st.sampled_from([(-6, 4), (-6, -3), (-2, 1), (1, 4)])


def draw(shape, seed=0, decays=(-2, 1), dtype=torch.float64):
    """Return the six inputs, with gradients; dt is 0 at a tenth of the tokens."""
    batch, time, d_inner, d_state = shape
    rng = torch.Generator().manual_seed(seed)

    def normal(*size):
        return torch.randn(size, generator=rng, dtype=torch.float64)

    def root_of_decay(*size):
        low, high = decays
        return 10 ** (
            (low + (high - low) * torch.rand(size, generator=rng, dtype=torch.float64)) / 2
        )

    dt = root_of_decay(batch, time, d_inner) * (
        torch.rand(batch, time, d_inner, generator=rng) > 0.1
    )
    B, C = normal(batch, time, d_state), normal(batch, time, d_state)
    inputs = (
        normal(batch, time, d_inner),
        dt,
        -root_of_decay(d_inner, d_state),
        B,
        C,
        normal(d_inner),
    )
    return [tensor.to(dtype).requires_grad_() for tensor in inputs]
