"""Compiled ops, for one thread, and what several of them share; imported only when one runs."""

from collections.abc import Callable

from numba import njit
from numba.core.caching import FunctionCache

from mecheval.core.numba_cache import ensure_cache

FAST = {"reassoc", "contract"}  # sums may be reordered; NaN and infinity keep their meaning
GROUP = 4  # numbers, rows or states that a loop takes at once: more would not fit into registers

ensure_cache()  # before a kernel is defined, which fails without a place for its cache


class WidthCache(FunctionCache):
    """Finds a compiled kernel again by its width.

    numba's own key has the functions that a kernel calls. Those inside another function are made
    anew by every process, which would so compile the kernel again.
    """

    def __init__(self, kernel: Callable[..., None], width: int) -> None:
        super().__init__(kernel)
        self._width = width

    def _index_key(self, signature, codegen):
        return signature, codegen.magic_tuple(), self._width


def compile_for(width: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that compiles a kernel of this width, once for all processes."""

    def compiled(function):
        kernel = njit(fastmath=FAST, error_model="numpy")(function)
        kernel._cache = WidthCache(function, width)  # type: ignore[attr-defined]
        return kernel

    return compiled


@njit(inline="always")
def four(rows, i):
    """Return the four numbers or rows from i on."""
    return rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
