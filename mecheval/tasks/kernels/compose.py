"""Compose documents, compiled; `mecheval.tasks.compose.compose_ref` is the plain twin."""

import numpy as np
from numba import njit

from mecheval.tasks.documents import BOS, DIVIDER, FIRST_SYMBOL
from mecheval.tasks.kernels.stream import deal, fill_all, gather
from mecheval.tasks.philox import CHUNK


@njit(cache=True)
def draw_compose(key, index, third, grid, queries, tokens, asked):
    """Fill tokens and the place of each query's triple."""
    cells = grid * grid
    words = np.empty(-(-(2 * grid + 2 * cells + queries) // CHUNK) * CHUNK, np.uint32)
    firsts, seconds, values = np.arange(third), np.arange(third), np.arange(third)
    order, chosen = np.arange(cells), np.arange(cells)
    for row in range(len(index)):
        fill_all(words, key, index[row], 0)
        at = deal(firsts, words, 0, grid)
        at = deal(seconds, words, at, grid)
        at = deal(values, words, at, cells)
        at = deal(order, words, at, cells)
        deal(chosen, words, at, queries)
        tokens[row, 0] = BOS
        for i in range(cells):
            place = 1 + 3 * i
            tokens[row, place] = FIRST_SYMBOL + firsts[order[i] // grid]
            tokens[row, place + 1] = FIRST_SYMBOL + third + seconds[order[i] % grid]
            tokens[row, place + 2] = FIRST_SYMBOL + 2 * third + values[i]
        end = 1 + 3 * cells
        tokens[row, end] = DIVIDER
        for j in range(queries):
            place = 1 + 3 * chosen[j]
            asked[row, j] = chosen[j]
            tokens[row, end + 1 + 2 * j] = tokens[row, place]
            tokens[row, end + 2 + 2 * j] = tokens[row, place + 1]
        gather(chosen, words, at, queries)
        gather(order, words, 2 * grid + cells, cells)
        gather(values, words, 2 * grid, cells)
        gather(seconds, words, grid, grid)
        gather(firsts, words, 0, grid)
