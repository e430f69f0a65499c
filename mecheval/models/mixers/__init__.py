"""The mixers, one file each, named as users name them.

`forward(x)` maps the stream to what the block adds to it. Three methods are optional:

    read(x, at)       the output at some positions. In the last layer, where nothing is recorded,
                      it replaces `forward`: it computes only the positions that are read and
                      skips the sites in between; `check_mixer` proves it equal.
    mixing(x)         the weights by which tokens are mixed, and the values they weigh
    state_size(time)  how many numbers must be kept to continue after so many tokens
"""

from jaxtyping import Float
from torch import Tensor

Stream = Float[Tensor, "batch time d_model"]
Output = Float[Tensor, "batch reads d_model"]
Weights = Float[Tensor, "batch head time source"]
Mixed = tuple[Weights, Float[Tensor, "batch source head d_head"]]  # what `mixing` returns
