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
    passes,
    gaps,
    filler,
    types,
    max_attempts,
    tokens,
    dividers,
    asked,
    places,
):
    """Fill tokens, the divider, and the pair and place of each query; return the first row that
    failed, or −1.

    `types` is (query_place, answer_place, size, side): side 1 asks only held-out types, −1 only the
    others, 0 any. `gaps` are the weights of the slots for queries, of which there may be none.
    """
    query_place, answer_place, size, side = types
    slots = len(gaps)
    choices = 2 * max_pairs + queries + 1 + (queries + 2 * slots if slots else 0)
    words = np.empty(-(-choices // CHUNK) * CHUNK, np.uint32)
    left = np.empty(slots, np.int64)
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
        end = 2 * pairs * passes + 1
        for place in range(2 * pairs + 1, end):
            tokens[row, place] = tokens[row, place - 2 * pairs]
        tokens[row, 0], tokens[row, end] = BOS, DIVIDER
        dividers[row] = end
        tokens[row, end + 1 :] = PAD
        for j in range(queries):
            other = j + below(words[at + j], found - j)
            eligible[j], eligible[other] = eligible[other], eligible[j]
            asked[row, j] = eligible[j]
            places[row, j] = end + 1 + j
        at += queries
        if slots:  # draw without replacement, each time by the weights of those that are left
            total = 0
            for slot in range(slots):
                left[slot] = gaps[slot]
                total += gaps[slot]
            for j in range(queries):
                slot, skip = 0, below(words[at + j], total)
                while skip >= left[slot]:
                    skip -= left[slot]
                    slot += 1
                total -= left[slot]
                left[slot] = 0
            at, j = at + queries, 0
            for slot in range(slots):
                if not left[slot]:
                    places[row, j] = end + 1 + 2 * slot
                    j += 1
        j = 0
        for place in range(end + 1, places[row, queries - 1] + 1):
            if place == places[row, j]:
                tokens[row, place] = tokens[row, 1 + 2 * asked[row, j] + reverse]
                j += 1
            else:
                tokens[row, place] = FIRST_SYMBOL + 2 * symbols + below(words[at], filler)
                at += 1
    return -1
