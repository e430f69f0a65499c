"""Recall documents, compiled; `mecheval.tasks.reference.recall_ref` is the plain Python twin."""

import numpy as np
from numba import njit

from mecheval.tasks.documents import BOS, DIVIDER, FIRST_SYMBOL, PAD
from mecheval.tasks.kernels.stream import below, fill
from mecheval.tasks.philox import CHUNK


@njit(cache=True)
def draw_recall(
    key,
    index,
    symbols,
    min_pairs,
    max_pairs,
    queries,
    reverse,
    types,
    max_attempts,
    tokens,
    lengths,
    asked,
):
    """Fill tokens, lengths and the pair of each query; return the first row that failed, or −1.

    `types` is (query_place, answer_place, size, side): side 1 asks only held-out types, −1 only the
    others, 0 any.
    """
    query_place, answer_place, size, side = types
    words = np.empty(-(-(2 * max_pairs + queries + 1) // CHUNK) * CHUNK, np.uint32)
    keys, values = np.arange(symbols).astype(np.int32), np.arange(symbols).astype(np.int32)
    moved = np.empty((max_pairs, 2), np.int64)
    eligible = np.empty(max_pairs, np.int64)
    for row in range(len(index)):
        for attempt in range(max_attempts):
            for chunk in range(len(words) // CHUNK):
                fill(words, chunk, key, index[row], attempt)
            pairs = min_pairs + below(words[0], max_pairs - min_pairs + 1)
            at, found = 1, 0
            for i in range(pairs):  # the first places of two shuffled packs
                a, b = i + below(words[at], symbols - i), i + below(words[at + 1], symbols - i)
                at += 2
                moved[i, 0], moved[i, 1] = a, b
                k, v = keys[a], values[b]
                keys[a], values[b] = keys[i], values[i]
                keys[i], values[i] = k, v
                tokens[row, 1 + 2 * i], tokens[row, 2 + 2 * i] = (
                    FIRST_SYMBOL + k,
                    FIRST_SYMBOL + symbols + v,
                )
                if side:
                    query, answer = (v, k) if reverse else (k, v)
                    held_out = (answer_place[answer] - query_place[query]) % symbols < size
                    if held_out != (side > 0):
                        continue
                eligible[found] = i
                found += 1
            for i in range(pairs - 1, -1, -1):  # undo, so that no document depends on the last
                a, b = moved[i, 0], moved[i, 1]
                keys[a], keys[i] = keys[i], keys[a]
                values[b], values[i] = values[i], values[b]
            if found >= queries:
                break
        else:
            return row
        end = 2 * pairs + 1
        tokens[row, 0], tokens[row, end] = BOS, DIVIDER
        lengths[row] = end + 1 + queries
        for column in range(end + 1 + queries, tokens.shape[1]):
            tokens[row, column] = PAD
        for j in range(queries):
            other = j + below(words[at + j], found - j)
            eligible[j], eligible[other] = eligible[other], eligible[j]
            asked[row, j] = eligible[j]
            tokens[row, end + 1 + j] = tokens[row, 1 + 2 * eligible[j] + reverse]
    return -1
