"""Compiled ops, for one thread, and what several of them share; imported only when one runs."""

from numba import njit

from mecheval.core.numba_cache import ensure_cache

FAST = {"reassoc", "contract"}  # sums may be reordered; NaN and infinity keep their meaning
GROUP = 4  # numbers, rows or states that a loop takes at once: more would not fit into registers

ensure_cache()  # before a kernel is defined, which fails without a place for its cache


@njit(inline="always")
def four(rows, i):
    """Return the four numbers or rows from i on."""
    return rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
