"""Spans documents, compiled; `mecheval.tasks.spans.spans_ref` is the plain twin."""

import numpy as np
from numba import njit

from mecheval.tasks.documents import BOS, DIVIDER, FIRST_SYMBOL, PAD
from mecheval.tasks.kernels.stream import below, deal, fill_all, gather
from mecheval.tasks.philox import CHUNK


@njit(cache=True)
def draw_spans(key, index, symbols, pairs, shortest, sizes, tokens, places, queries, answers):
    """Fill tokens, queries, answers, and the places of key, value and what follows them."""
    words = np.empty(-(-(pairs * (2 + sizes[0] + sizes[1]) + 1) // CHUNK) * CHUNK, np.uint32)
    pack = np.arange(symbols)
    lengths = np.empty((pairs, 2), np.int64)
    spans = np.empty((pairs, 2, max(sizes)), np.int32)
    starts = np.empty((pairs, 2), np.int64)
    for row in range(len(index)):
        fill_all(words, key, index[row], 0)
        at, end = 0, 1
        tokens[row, 0] = BOS
        for i in range(pairs):
            for side in range(2):
                lengths[i, side] = shortest + below(words[at], sizes[side] - shortest + 1)
                at = deal(pack, words, at + 1, lengths[i, side])
                for t in range(lengths[i, side]):
                    spans[i, side, t] = FIRST_SYMBOL + side * symbols + pack[t]
                gather(pack, words, at - lengths[i, side], lengths[i, side])
            for other in range(i):
                # the first tokens are compared here, since the call costs ten times as much
                if spans[i, 0, 0] != spans[other, 0, 0]:
                    continue
                if _same_key(spans, lengths, i, other):  # a key that is read again
                    lengths[i, 1] = lengths[other, 1]
                    for t in range(lengths[i, 1]):
                        spans[i, 1, t] = spans[other, 1, t]
                    break
            for side in range(2):
                starts[i, side] = end
                for t in range(lengths[i, side]):
                    tokens[row, end] = spans[i, side, t]
                    end += 1
        asked = below(words[at], pairs)
        for other in range(asked + 1, pairs):
            if _same_key(spans, lengths, asked, other):
                asked = other
        tokens[row, end] = DIVIDER
        for t in range(lengths[asked, 0]):
            tokens[row, end + 1 + t] = spans[asked, 0, t]
        first = end + lengths[asked, 0]
        for j in range(sizes[1]):
            t = min(j, lengths[asked, 1] - 1)
            queries[row, j], answers[row, j] = first + t, spans[asked, 1, t]
            tokens[row, first + 1 + t] = spans[asked, 1, t]
        tokens[row, first + lengths[asked, 1] :] = PAD
        places[row, 0], places[row, 1] = starts[asked, 0], starts[asked, 1]
        places[row, 2], places[row, 3] = starts[asked, 1] + lengths[asked, 1], end


@njit(cache=True)
def _same_key(spans, lengths, i, other):
    same = lengths[i, 0] == lengths[other, 0]
    for t in range(lengths[i, 0] if same else 0):
        same &= spans[i, 0, t] == spans[other, 0, t]
    return same
