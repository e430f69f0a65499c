"""The compiled twin of `philox.Stream`, with the same words.

A kernel holds its words in an array and calls `fill` for the next chunk. Passing an array to a function
in the inner loop costs ten times the draw itself (numba counts references), so `below` takes one word.
"""

import numpy as np
from numba import njit

from mecheval.tasks.philox import CHUNK, LANES, MULTIPLIERS, ROUNDS, WEYL

M0, M1 = np.uint64(MULTIPLIERS[0]), np.uint64(MULTIPLIERS[1])
W0, W1 = np.uint32(WEYL[0]), np.uint32(WEYL[1])
BITS = np.uint64(32)


@njit(cache=True, inline="always")
def _round(c0, c1, c2, c3, k0, k1):
    a, b = M0 * np.uint64(c0), M1 * np.uint64(c2)
    return (
        np.uint32(b >> BITS) ^ c1 ^ k0,
        np.uint32(b),
        np.uint32(a >> BITS) ^ c3 ^ k1,
        np.uint32(a),
    )


@njit(cache=True)
def fill(words, chunk, key, index, attempt):
    """Write one chunk of the stream to its place in `words`."""
    key, index = np.uint64(key), np.uint64(index)
    words = words[chunk * CHUNK : (chunk + 1) * CHUNK]
    for lane in range(LANES):  # 32-bit lanes with no branch: one pass of the vector unit
        c0, c1, c2, c3 = (
            np.uint32(chunk * LANES + lane),
            np.uint32(index),
            np.uint32(index >> BITS),
            np.uint32(attempt),
        )
        k0, k1 = np.uint32(key), np.uint32(key >> BITS)
        for _ in range(ROUNDS):
            c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
            k0, k1 = np.uint32(k0 + W0), np.uint32(k1 + W1)
        words[lane], words[LANES + lane], words[2 * LANES + lane], words[3 * LANES + lane] = (
            c0,
            c1,
            c2,
            c3,
        )


@njit(cache=True, inline="always")
def below(word, n):
    return np.int64(np.uint64(word) * np.uint64(n) >> BITS)


@njit(cache=True)
def fill_all(words, key, index, attempt):
    """Write the stream from its beginning to all of `words`, a whole number of chunks."""
    for chunk in range(len(words) // CHUNK):
        fill(words, chunk, key, index, attempt)


@njit(cache=True)
def deal(pack, words, at, count):
    """Shuffle `count` of a pack 0 … n−1 to its front, as `reference.Pack` draws them; return the
    place of the next word. `gather` makes the pack whole again, with the same words."""
    for i in range(count):
        j = i + below(words[at + i], len(pack) - i)
        pack[i], pack[j] = pack[j], pack[i]
    return at + count


@njit(cache=True)
def gather(pack, words, at, count):
    """Undo `deal`, so that no document depends on the last."""
    for i in range(count - 1, -1, -1):
        j = i + below(words[at + i], len(pack) - i)
        pack[i], pack[j] = pack[j], pack[i]
