"""Counter-based random numbers: a pure function of (key, index, attempt).

Philox-4x32-10 (Salmon et al., 2011): ten rounds of multiply and exchange turn a counter into four
random words. The stream of attempt a at document i comes in chunks of 64 words. Chunk c runs 16
counters (16c … 16c+15, i, a); its words are the first output of all sixteen, then the second, third
and fourth, so that a vector unit computes them at once. One choice takes one word.
`mecheval.tasks.kernels.stream` is the compiled twin.
"""

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int, UInt32, UInt64
from numpy import ndarray

from mecheval.core.spec import canonical_json, digest

LANES = 16
CHUNK = 4 * LANES
ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
MASK = 0xFFFFFFFF


def key_of(*parts: object) -> int:
    """Hash all parts to 64 bits."""
    return int(digest(canonical_json(parts))[:16], 16)


def philox(counter: Sequence[UInt64[ndarray, " n"]], key: int) -> list[UInt64[ndarray, " n"]]:
    """Return four words for each counter (c0, c1, c2, c3), element by element."""
    c0, c1, c2, c3 = counter
    k0, k1 = key & MASK, key >> 32
    for _ in range(ROUNDS):
        a, b = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & MASK, (a >> 32) ^ c3 ^ k1, a & MASK
        k0, k1 = (k0 + WEYL[0]) & MASK, (k1 + WEYL[1]) & MASK
    return [c0, c1, c2, c3]


def words(key: int, index: int, attempt: int, chunks: range) -> UInt32[ndarray, " words"]:
    """Return some chunks of one stream."""
    blocks = np.arange(chunks.start * LANES, chunks.stop * LANES, dtype=np.uint64)
    fixed = [np.full_like(blocks, part) for part in (index & MASK, index >> 32, attempt)]
    outputs = np.stack(philox([blocks, *fixed], key))
    by_chunk = outputs.reshape(4, len(chunks), LANES).transpose(1, 0, 2)
    return by_chunk.reshape(-1).astype(np.uint32)


class Stream:
    """The random choices of one attempt at one document, in plain Python."""

    def __init__(self, key: int, index: int, attempt: int = 0) -> None:
        self._place = (key, index, attempt)
        self._chunk = 0
        self._waiting: list[int] = []

    @property
    def drawn(self) -> int:
        """The number of words used so far."""
        return self._chunk * CHUNK - len(self._waiting)

    def word(self) -> int:
        if not self._waiting:
            chunks = range(self._chunk, self._chunk + min(max(self._chunk, 1), 64))  # doubles
            self._waiting = words(*self._place, chunks).tolist()[::-1]
            self._chunk = chunks.stop
        return self._waiting.pop()

    def below(self, n: int) -> int:
        """Draw one of 0 … n−1, equally likely up to one part in 2³²/n."""
        return self.word() * n >> 32

    def pick(self, cuts: Sequence[int]) -> int:
        """Draw one of len(cuts) + 1 outcomes, cut from 0 … 2³² at ascending places."""
        return bisect_right(cuts, self.word())


def below(key: int, index: Int[ndarray, " n"], bound: Int[ndarray, " n"]) -> Int[ndarray, " n"]:
    """Return `Stream(key, i).below(b)` for every pair of index and bound at once."""
    wide = index.astype(np.uint64)
    zero = np.zeros_like(wide)
    first = philox([zero, wide & MASK, wide >> 32, zero], key)[0]
    return (first * bound.astype(np.uint64) >> 32).astype(np.int64)


def permutation(key: int, n: int) -> Int[ndarray, " n"]:
    """Return 0 … n−1 in an order that the key determines."""
    return np.argsort(words(key, 0, 0, range(-(-n // CHUNK)))[:n], kind="stable")
