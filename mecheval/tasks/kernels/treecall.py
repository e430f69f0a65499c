"""Treecall documents, compiled; `mecheval.tasks.reference.treecall_ref` says the same in plain Python."""

import numpy as np
from numba import njit

from mecheval.tasks.batch import BOS, DIVIDER, FIRST_SYMBOL
from mecheval.tasks.kernels.stream import below, fill, part
from mecheval.tasks.philox import CHUNK
from mecheval.tasks.reference import MIN_SYMBOLS

PARENT, SIBLING, CHILD, GRANDPARENT = range(4)


@njit(cache=True)
def derive(key, index, attempt, grammar, max_symbols):
    """One derivation for each index: symbols and parents laid end to end, the length of each (0: too long), and the two
    words that come next.

    The stack holds what is still to be placed, with the production that its parent heads. A head waits there as
    −1−symbol, with its own production, which is (the production of its parent, where the head was placed).
    """
    terminals, nonterminals, head_right, rule_start, rule_cuts, body_start, body, head_cuts = grammar
    lengths, next_words = np.empty(len(index), np.int32), np.empty((len(index), 2), np.uint32)
    symbols, parents = (
        np.empty(16 * len(index) + max_symbols, np.int32),
        np.empty(16 * len(index) + max_symbols, np.int32),
    )
    words = np.empty(-(-(2 * max_symbols + 3) // CHUNK) * CHUNK, np.uint32)
    stack, productions = np.empty((max_symbols + 1, 2), np.int32), np.empty((max_symbols + 1, 2), np.int32)
    start = 0
    for row in range(len(index)):
        if start + max_symbols > len(symbols):
            symbols, parents = _larger(symbols), _larger(parents)
        fill(words, 0, key, index[row], attempt)
        filled, at = CHUNK, 1
        stack[0, 0], stack[0, 1] = terminals + below(words[0], nonterminals), -1
        top, promised, expanded, end = 1, 1, 0, start
        while top:
            top -= 1
            symbol, owner = stack[top, 0], stack[top, 1]
            if symbol < terminals:
                if symbol < 0:
                    productions[owner, 1] = end - start
                    symbol, owner = -1 - symbol, productions[owner, 0]
                symbols[end], parents[end] = symbol, owner
                end += 1
                continue
            if at + 2 > filled:
                fill(words, filled // CHUNK, key, index[row], attempt)
                filled += CHUNK
            x = symbol - terminals
            rule = rule_start[x] + part(words[at], rule_cuts, rule_start[x], rule_start[x + 1] - 1)
            head = part(words[at + 1], head_cuts, x * (terminals - 1), (x + 1) * (terminals - 1))
            at += 2
            first, last = body_start[rule], body_start[rule + 1]
            promised += last - first
            if promised > max_symbols:
                end = start
                break
            productions[expanded, 0] = owner
            if head_right:
                stack[top, 0], stack[top, 1] = -1 - head, expanded
                top += 1
            for i in range(last - 1, first - 1, -1):
                stack[top, 0], stack[top, 1] = body[i], expanded
                top += 1
            if not head_right:
                stack[top, 0], stack[top, 1] = -1 - head, expanded
                top += 1
            expanded += 1
        for i in range(start, end):
            if parents[i] >= 0:
                parents[i] = productions[parents[i], 1]
        if at + 2 > filled:
            fill(words, filled // CHUNK, key, index[row], attempt)
        next_words[row, 0], next_words[row, 1] = words[at], words[at + 1]
        lengths[row] = end - start
        start = end
    return symbols, parents, lengths, next_words


@njit(cache=True)
def _larger(array):
    larger = np.empty(2 * len(array), np.int32)
    larger[: len(array)] = array
    return larger


@njit(cache=True)
def ask(symbols, parents, lengths, words, query, types, terminals):
    """For each derivation the node that is asked about and the one asked for; −1 if it is to be drawn again.

    First the answer, among all that anyone may ask for, then one of those who ask for it.
    """
    query_place, answer_place, size, side = types
    keys, values = np.full(len(lengths), -1, np.int32), np.full(len(lengths), -1, np.int32)
    rightmost = np.empty(terminals, np.int32)
    rightmost_child, wanted = np.empty(lengths.max(), np.int32), np.empty(lengths.max(), np.int32)
    askers = np.empty(lengths.max(), np.int32)
    end = 0
    for row in range(len(lengths)):
        start, end = end, end + lengths[row]
        if lengths[row] < MIN_SYMBOLS:
            continue
        for i in range(lengths[row]):
            rightmost[symbols[start + i]] = i
            rightmost_child[i], wanted[i], askers[i] = -1, -1, 0
        for i in range(lengths[row]):
            if parents[start + i] >= 0:
                rightmost_child[parents[start + i]] = i
        answers = 0
        for i in range(lengths[row]):
            symbol, parent = symbols[start + i], parents[start + i]
            if rightmost[symbol] != i:
                continue
            if query == CHILD:
                target = rightmost_child[i]
            elif parent < 0 or query == PARENT:
                target = parent
            elif query == SIBLING:
                target = rightmost_child[parent]
            else:
                target = parents[start + parent]
            if target < 0:
                continue
            if side:
                distance = answer_place[symbols[start + target]] - query_place[symbol]
                if (distance % terminals < size) != (side > 0):
                    continue
            wanted[i] = target
            answers += askers[target] == 0
            askers[target] += 1
        if answers:
            values[row] = _nth(below(words[row, 0], answers), askers)
            keys[row] = _nth_equal(below(words[row, 1], askers[values[row]]), wanted, values[row])
    return keys, values


@njit(cache=True)
def _nth(n, counts):
    """The place of the n-th count that is not 0."""
    place = 0
    while n or not counts[place]:
        n -= counts[place] > 0
        place += 1
    return place


@njit(cache=True)
def _nth_equal(n, array, value):
    place = 0
    while n or array[place] != value:
        n -= array[place] == value
        place += 1
    return place


@njit(cache=True)
def lay_out(symbols, parents, lengths, starts, flat, tree):
    """Writes derivations to their places as documents: BOS in front, DIVIDER and room for the query behind."""
    end = 0
    for row in range(len(lengths)):
        start, end = end, end + lengths[row]
        at = starts[row]
        flat[at], tree[at] = BOS, -1
        for i in range(start, end):
            at += 1
            flat[at] = FIRST_SYMBOL + symbols[i]
            tree[at] = parents[i] + 1 if parents[i] >= 0 else -1
        flat[at + 1], tree[at + 1], tree[at + 2] = DIVIDER, -1, -1
