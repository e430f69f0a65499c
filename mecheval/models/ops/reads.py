"""Where a stream is read: some positions of each row, and what stands there."""

from jaxtyping import Float, Int
from torch import Tensor

Reads = Int[Tensor, "batch reads"]


def gathered(x: Float[Tensor, "batch time channel"], at: Reads) -> Float[Tensor, "batch reads channel"]:
    return x.gather(1, at[:, :, None].expand(-1, -1, x.shape[2]))
