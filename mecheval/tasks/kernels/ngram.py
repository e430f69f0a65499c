"""Ngram documents, compiled; `mecheval.tasks.ngram.ngram_ref` is the plain twin."""

import numpy as np
from numba import njit

from mecheval.tasks.documents import BOS, FIRST_SYMBOL
from mecheval.tasks.kernels.stream import below, fill
from mecheval.tasks.philox import CHUNK


@njit(cache=True)
def draw_ngram(key, index, symbols, order, least, max_attempts, tokens, answers, values):
    """Fill tokens, answers and the place of the last one read; return the first row that failed,
    or −1."""
    length, contexts = tokens.shape[1] - 1, symbols**order
    cuts = np.empty((contexts, symbols - 1), np.uint32)
    visited, counts = np.empty(contexts, np.bool_), np.empty(symbols, np.int64)
    most = length + min(length, contexts) * (symbols - 1)
    words = np.empty(-(-most // CHUNK) * CHUNK, np.uint32)
    for row in range(len(index)):
        for attempt in range(max_attempts):
            at, filled, context = 0, 0, 0
            visited[:] = False
            for i in range(length):
                while at + symbols > filled and filled < len(words):
                    fill(words, filled // CHUNK, key, index[row], attempt)
                    filled += CHUNK
                if i < order:
                    symbol = below(words[at], symbols)
                else:
                    if not visited[context]:  # spacings of uniform words are a uniform Dirichlet
                        cuts[context] = np.sort(words[at : at + symbols - 1])
                        visited[context] = True
                        at += symbols - 1
                    symbol = 0
                    for cut in cuts[context]:
                        symbol += cut <= words[at]
                at += 1
                tokens[row, 1 + i] = FIRST_SYMBOL + symbol
                context = (context * symbols + symbol) % contexts
            counts[:] = 0
            for i in range(order, length):
                if _same_context(tokens[row], i, length, order):
                    counts[tokens[row, 1 + i] - FIRST_SYMBOL] += 1
            answer, total, best = np.argmax(counts), counts.sum(), counts.max()
            if total >= least and (counts == best).sum() == 1:
                break
        else:
            return row
        tokens[row, 0] = BOS
        answers[row] = FIRST_SYMBOL + answer
        for i in range(order, length):
            if tokens[row, 1 + i] == answers[row] and _same_context(tokens[row], i, length, order):
                values[row] = 1 + i
    return -1


@njit(cache=True)
def _same_context(tokens, i, length, order):
    """Return True if the symbols before i are those before the end."""
    same = True
    for back in range(order):
        same &= tokens[i - back] == tokens[length - back]
    return same
