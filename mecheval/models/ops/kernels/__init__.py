"""Compiled loops, and what several of them share."""

from numba import njit

FAST = {"reassoc", "contract"}  # sums may be reordered; NaN and infinity keep their meaning
GROUP = 4  # numbers, rows or states that a loop takes at once: more would not fit into registers


@njit(inline="always")
def four(rows, i):
    """Return the four numbers or rows from i on."""
    return rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
