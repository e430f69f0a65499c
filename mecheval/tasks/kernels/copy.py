"""Copy documents, compiled; `mecheval.tasks.copy.copy_ref` is the plain twin."""

import numpy as np
from numba import njit

from mecheval.tasks.documents import BOS, DIVIDER, FIRST_SYMBOL
from mecheval.tasks.kernels.stream import below, fill_all
from mecheval.tasks.philox import CHUNK


@njit(cache=True)
def draw_copy(key, index, symbols, count, blanks, tokens, places, ranks):
    """Fill tokens, the places of those to copy, and the rank that the first query asks for."""
    words = np.empty(-(-(count + blanks + 1) // CHUNK) * CHUNK, np.uint32)
    gaps = np.empty(count, np.int64)
    blank = FIRST_SYMBOL + symbols
    for row in range(len(index)):
        fill_all(words, key, index[row], 0)
        gaps[:] = 0
        for i in range(blanks):
            gaps[below(words[count + i], count)] += 1
        tokens[row] = blank
        end = 1
        for i in range(count):
            end += gaps[i]
            tokens[row, end] = FIRST_SYMBOL + below(words[i], symbols)
            places[row, i] = end
            end += 1
        tokens[row, 0], tokens[row, end] = BOS, DIVIDER
        ranks[row] = below(words[count + blanks], count)
