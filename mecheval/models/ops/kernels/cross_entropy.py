"""Cross-entropy of rows of logits, and its gradient, compiled for one thread."""

import numpy as np
from numba import njit

from mecheval.models.ops.kernels.exponential import decay

FAST = {"reassoc", "contract"}  # sums over the vocabulary may change their order


@njit(cache=True, fastmath=FAST, error_model="numpy")
def forward(logits, highest, answers, losses, slopes):
    """Writes the loss of each row, and how their mean changes with each logit: (softmax − 1 at the answer) / rows.

    The highest logit of each row is given: LLVM would look for it one by one.
    """
    rows, vocab = logits.shape
    for r in range(rows):
        row, out, answer = logits[r], slopes[r], answers[r]
        most, total = highest[r], logits.dtype.type(0)
        for c in range(vocab):
            out[c] = decay(row[c] - most)
            total += out[c]
        share = logits.dtype.type(1) / (total * logits.dtype.type(rows))
        for c in range(vocab):
            out[c] *= share
        out[answer] -= logits.dtype.type(1) / logits.dtype.type(rows)
        losses[r] = _less(np.log(total), row[answer], most)


@njit(cache=True)
def _less(log_total, answer, most):
    """In this order, which `reassoc` would not keep: a certain answer has a loss of nearly 0, and it is exact."""
    return log_total - (answer - most)
