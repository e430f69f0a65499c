"""Hop induction documents, compiled; `mecheval.tasks.hop_induction.hop_induction_ref` is the plain
twin."""

import numpy as np
from numba import njit

from mecheval.tasks.documents import BOS, FIRST_SYMBOL
from mecheval.tasks.kernels.stream import below, fill_all
from mecheval.tasks.philox import CHUNK


@njit(cache=True)
def draw_hop_induction(key, index, letters, hops, max_attempts, tokens, found, places):
    """Fill tokens, where each position's hops end (the length for nowhere), and the query with its first
    and last match; return the first row that failed, or −1."""
    length = found.shape[1]
    words = np.empty(-(-(length + 2) // CHUNK) * CHUNK, np.uint32)
    after = np.full(length + 1, length, np.int32)  # from nowhere, the length, to nowhere
    latest = np.empty(letters, np.int32)
    for row in range(len(index)):
        for attempt in range(max_attempts):
            fill_all(words, key, index[row], attempt)
            count, letter = below(words[0], hops), 0
            latest[:] = -1
            for i in range(length):
                letter += 1 + below(words[1 + i], letters - 1) if i else below(words[1], letters)
                letter -= letters if letter >= letters else 0
                tokens[row, 2 + i] = FIRST_SYMBOL + letter
                after[i] = latest[letter] + 1 if latest[letter] >= 0 else length
                latest[letter] = i
                found[row, i] = i
            for _ in range(count + 1):
                for i in range(length):
                    found[row, i] = after[found[row, i]]
            answered = 0
            for i in range(length):
                answered += found[row, i] < length
            if answered:
                break
        else:
            return row
        tokens[row, 0], tokens[row, 1] = BOS, FIRST_SYMBOL + letters + count
        query, skip = 0, below(words[1 + length], answered)
        while skip or found[row, query] == length:
            skip -= found[row, query] < length
            query += 1
        places[row, 0], places[row, 1] = query, after[query] - 1
        places[row, 2] = found[row, query] - 1
    return -1
