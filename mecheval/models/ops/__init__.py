"""Pure functions behind the mixers.

Each has a plain twin `*_ref` that reads like the equation; tests compare the two.
"""

from jaxtyping import Float, Int
from torch import Tensor

Reads = Int[Tensor, "batch reads"]  # positions at which each row is read
Stream = Float[Tensor, "batch time channel"]


def gather_reads(x: Stream, at: Reads) -> Float[Tensor, "batch reads channel"]:
    """Return what each row of the stream holds at the positions `at`."""
    return x.gather(1, at[:, :, None].expand(-1, -1, x.shape[2]))
