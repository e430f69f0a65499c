"""Hops documents, compiled; `mecheval.tasks.hops.hops_ref` is the plain twin."""

import numpy as np
from numba import njit

from mecheval.tasks.documents import BOS, DIVIDER, FIRST_SYMBOL, PAD
from mecheval.tasks.kernels.stream import below, deal, fill_all, gather
from mecheval.tasks.philox import CHUNK


@njit(cache=True)
def draw_hops(key, index, symbols, nodes, cuts, hops, places, tokens, queries, answers):
    """Fill tokens, queries, answers, and the places of the first query's first and last edge.

    `nodes` are the fewest; `cuts` divide the words among the numbers of nodes from there on.
    """
    most = nodes + len(cuts)
    words = np.empty(-(-(1 + 2 * most + 2 * queries.shape[1]) // CHUNK) * CHUNK, np.uint32)
    names, order = np.arange(symbols), np.arange(most)
    place_of = np.empty(most, np.int32)
    for row in range(len(index)):
        fill_all(words, key, index[row], 0)
        n = nodes
        for cut in cuts:
            n += cut <= words[0]
        at = deal(names, words, 1, n)
        at = deal(order[:n], words, at, n)
        tokens[row, 0] = BOS
        for i in range(n):
            place_of[order[i]] = 1 + 2 * i
            after = order[i] + 1 if order[i] + 1 < n else 0
            tokens[row, 1 + 2 * i] = FIRST_SYMBOL + names[order[i]]
            tokens[row, 2 + 2 * i] = FIRST_SYMBOL + names[after]
        end = 1 + 2 * n
        tokens[row, end] = DIVIDER
        for j in range(queries.shape[1]):
            start, count = below(words[at], n), below(words[at + 1], hops)
            at += 2
            queries[row, j] = end + 2 + 2 * j
            tokens[row, queries[row, j] - 1] = FIRST_SYMBOL + symbols + count
            tokens[row, queries[row, j]] = FIRST_SYMBOL + names[start]
            answers[row, j] = FIRST_SYMBOL + names[(start + count + 1) % n]
            if j == 0:
                places[row, 0], places[row, 1] = place_of[start], place_of[(start + count) % n]
        tokens[row, queries[row, -1] + 1 :] = PAD
        gather(order[:n], words, 1 + n, n)
        gather(names, words, 1, n)
