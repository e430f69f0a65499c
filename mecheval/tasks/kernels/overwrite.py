"""Overwrite documents, compiled; `mecheval.tasks.overwrite.overwrite_ref` is the plain twin."""

import numpy as np
from numba import njit

from mecheval.tasks.documents import BOS, DIVIDER, FIRST_SYMBOL
from mecheval.tasks.kernels.stream import below, deal, fill_all, gather
from mecheval.tasks.philox import CHUNK


@njit(cache=True)
def draw_overwrite(key, index, symbols, pairs, updates, queries, tokens, asked, updated, answers):
    """Fill tokens, the pair of each query, the place of the first query's pair among the updates,
    and answers."""
    words = np.empty(-(-(3 * pairs + 2 * updates + queries) // CHUNK) * CHUNK, np.uint32)
    keys, values = np.arange(symbols), np.arange(symbols)
    chosen, others = np.arange(pairs), np.arange(pairs - 1)
    current = np.empty(pairs, np.int64)
    for row in range(len(index)):
        fill_all(words, key, index[row], 0)
        at = deal(keys, words, 0, pairs)
        at = deal(values, words, at, pairs)
        at = deal(chosen, words, at, updates)
        tokens[row, 0] = BOS
        for i in range(pairs):
            tokens[row, 1 + 2 * i] = FIRST_SYMBOL + keys[i]
            tokens[row, 2 + 2 * i] = FIRST_SYMBOL + symbols + values[i]
            current[i] = values[i]
        for j in range(updates):
            i, new = chosen[j], below(words[at], symbols - 1)
            at += 1
            new += new >= values[i]  # any value but the old one
            tokens[row, 1 + 2 * (pairs + j)] = FIRST_SYMBOL + keys[i]
            tokens[row, 2 + 2 * (pairs + j)] = FIRST_SYMBOL + symbols + new
            current[i] = new
        end = 1 + 2 * (pairs + updates)
        tokens[row, end] = DIVIDER
        updated[row] = below(words[at], updates)
        asked[row, 0] = chosen[updated[row]]
        deal(others, words, at + 1, queries - 1)
        for j in range(1, queries):
            asked[row, j] = others[j - 1] + (others[j - 1] >= asked[row, 0])
        for j in range(queries):
            tokens[row, end + 1 + j] = FIRST_SYMBOL + keys[asked[row, j]]
            answers[row, j] = FIRST_SYMBOL + symbols + current[asked[row, j]]
        gather(others, words, at + 1, queries - 1)
        gather(chosen, words, 2 * pairs, updates)
        gather(values, words, pairs, pairs)
        gather(keys, words, 0, pairs)
