"""Track documents, compiled; `mecheval.tasks.track.track_ref` is the plain twin."""

import numpy as np
from numba import njit

from mecheval.tasks.documents import BOS, FIRST_SYMBOL
from mecheval.tasks.kernels.stream import below, fill_all
from mecheval.tasks.philox import CHUNK


@njit(cache=True)
def draw_track(key, index, table, tokens, products, elements):
    """Fill tokens, the running product after each, and the place of the element to corrupt."""
    length = products.shape[1]
    words = np.empty(-(-(length + 1) // CHUNK) * CHUNK, np.uint32)
    for row in range(len(index)):
        fill_all(words, key, index[row], 0)
        tokens[row, 0] = BOS
        product = 0
        for i in range(length):
            element = below(words[i], len(table))
            product = table[product, element]
            tokens[row, 1 + i] = FIRST_SYMBOL + element
            products[row, i] = FIRST_SYMBOL + product
        elements[row] = 1 + below(words[length], length - 1)
