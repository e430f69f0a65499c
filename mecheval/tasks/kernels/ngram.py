"""Ngram documents, compiled; `mecheval.tasks.ngram.ngram_ref` is the plain twin."""

import numpy as np
from numba import njit

from mecheval.tasks.documents import BOS, FIRST_SYMBOL
from mecheval.tasks.kernels.stream import below, fill
from mecheval.tasks.philox import CHUNK


@njit(cache=True)
def draw_ngram(key, index, symbols, order, least, max_attempts, tokens, answers, values):
    """Fill tokens, answers and the last place before the query where each was read; return the first
    row that failed, or −1."""
    length, contexts = tokens.shape[1] - 1, symbols**order
    cuts = np.empty((contexts, symbols - 1), np.uint32)
    visited, counts = np.empty(contexts, np.bool_), np.empty(symbols, np.int64)
    seen = np.empty(length, np.int64)
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
                        for j in range(symbols - 1):
                            place, word = j, words[at + j]
                            while place and cuts[context, place - 1] > word:
                                cuts[context, place] = cuts[context, place - 1]
                                place -= 1
                            cuts[context, place] = word
                        visited[context] = True
                        at += symbols - 1
                    symbol = 0
                    for j in range(symbols - 1):
                        symbol += cuts[context, j] <= words[at]
                at += 1
                tokens[row, 1 + i] = FIRST_SYMBOL + symbol
                seen[i] = context
                context = (context * symbols + symbol) % contexts
            counts[:] = 0
            for i in range(order, length):
                if seen[i] == context:
                    counts[tokens[row, 1 + i] - FIRST_SYMBOL] += 1
            answer, total, best = np.argmax(counts), counts.sum(), counts.max()
            if total >= least and (counts == best).sum() == 1:
                break
        else:
            return row
        tokens[row, 0] = BOS
        answers[row] = FIRST_SYMBOL + answer
        for i in range(order, length - 1):  # the last symbol is the query
            if seen[i] == context and tokens[row, 1 + i] == answers[row]:
                values[row] = 1 + i
    return -1
