"""Cross-entropy of columns of logits, and its gradient."""

import numpy as np
from numba import njit

from mecheval.models.ops.kernels.exponential import decay

BLOCK = 64  # tokens in a partial sum: a single sum of thousands would lose a digit


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def forward(logits, highest, answers, losses, slopes):
    """Write each column's loss, and the gradient of their mean: (softmax − 1 at the answer) / columns.

    The vocabulary comes first in memory, so that columns are the vectors. `highest` holds each
    column's highest logit.
    """
    vocab, columns = logits.shape
    one, total, part = logits.dtype.type(1), np.zeros_like(highest), np.zeros_like(highest)
    for start in range(0, vocab, BLOCK):
        part[:] = 0
        for v in range(start, min(start + BLOCK, vocab)):
            row, out = logits[v], slopes[v]
            for c in range(columns):
                out[c] = decay(row[c] - highest[c])
                part[c] += out[c]
        total += part
    share = one / (total * logits.dtype.type(columns))
    for v in range(vocab):
        out = slopes[v]
        for c in range(columns):
            out[c] *= share[c]
    for c in range(columns):
        slopes[answers[c], c] -= one / logits.dtype.type(columns)
        losses[c] = np.log(total[c]) - (logits[answers[c], c] - highest[c])
