"""Treecall documents, compiled; `mecheval.tasks.reference.treecall_ref` is the plain Python twin.

It is one function for the reason given in `stream`: cut in three, it takes 1.7 times as long.
"""

import numpy as np
from numba import njit

from mecheval.tasks.documents import BOS, DIVIDER, FIRST_SYMBOL
from mecheval.tasks.kernels.stream import below, fill
from mecheval.tasks.philox import CHUNK
from mecheval.tasks.reference import MIN_SYMBOLS

PARENT, SIBLING, CHILD, GRANDPARENT = range(4)


@njit(cache=True)
def draw_treecall(key, index, grammar, query, types, max_symbols, max_attempts):
    """Return tokens and parents of all rows end to end, the length, key and value of each row, and the
    first row that failed, or −1.

    `types` is (query_place, answer_place, size, side): side 1 asks only held-out types, −1 only the
    others, 0 any.
    """
    (
        terminals,
        nonterminals,
        head_right,
        rule_start,
        rule_cuts,
        body_start,
        body,
        head_cuts,
        guide,
        shift,
    ) = grammar
    query_place, answer_place, size, side = types
    lengths, keys, values = np.empty((3, len(index)), np.int32)
    flat, tree = np.empty(16 * len(index), np.int32), np.empty(16 * len(index), np.int16)
    words = np.empty(-(-(2 * max_symbols + 3) // CHUNK) * CHUNK, np.uint32)
    # The symbols still to be placed, each with the production that its parent heads. A head waits as
    # −1−symbol with its own production: (the production of its parent, where the head was placed).
    stack, productions = (
        np.empty((max_symbols + 1, 2), np.int32),
        np.empty((max_symbols + 1, 2), np.int32),
    )
    symbols, parents, rightmost_child, wanted, askers = np.empty((5, max_symbols), np.int32)
    rightmost = np.empty(terminals, np.int32)
    start = 0
    for row in range(len(index)):
        for attempt in range(max_attempts):
            # derive a string
            fill(words, 0, key, index[row], attempt)
            filled, at = CHUNK, 1
            stack[0, 0], stack[0, 1] = terminals + below(words[0], nonterminals), -1
            top, promised, expanded, count = 1, 1, 0, 0
            while top:
                top -= 1
                symbol, owner = stack[top, 0], stack[top, 1]
                if symbol < terminals:
                    if symbol < 0:
                        productions[owner, 1] = count
                        symbol, owner = -1 - symbol, productions[owner, 0]
                    symbols[count], parents[count] = symbol, owner
                    count += 1
                    continue
                if at + 2 > filled:
                    fill(words, filled // CHUNK, key, index[row], attempt)
                    filled += CHUNK
                x = symbol - terminals
                rule = rule_start[x]
                while rule < rule_start[x + 1] - 1 and rule_cuts[rule] <= words[at]:
                    rule += 1
                head = guide[x, words[at + 1] >> shift]
                while head < terminals - 1 and head_cuts[x, head] <= words[at + 1]:
                    head += 1
                at += 2
                first, last = body_start[rule], body_start[rule + 1]
                promised += last - first
                if promised > max_symbols:
                    count = 0
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
            if count < MIN_SYMBOLS:
                continue
            if at + 2 > filled:
                fill(words, filled // CHUNK, key, index[row], attempt)

            # find the eligible queries of each answer
            for i in range(count):
                if parents[i] >= 0:
                    parents[i] = productions[parents[i], 1]
                rightmost[symbols[i]] = i
                rightmost_child[i], wanted[i], askers[i] = -1, -1, 0
            if query == CHILD or query == SIBLING:  # noqa: SIM109 (numba would build the tuple)
                for i in range(count):
                    if parents[i] >= 0:
                        rightmost_child[parents[i]] = i
            answers = 0
            for i in range(count):
                if rightmost[symbols[i]] != i:
                    continue
                if query == CHILD:
                    target = rightmost_child[i]
                elif parents[i] < 0 or query == PARENT:
                    target = parents[i]
                elif query == SIBLING:
                    target = rightmost_child[parents[i]]
                else:
                    target = parents[parents[i]]
                if target < 0:
                    continue
                if side:
                    distance = answer_place[symbols[target]] - query_place[symbols[i]]
                    if (distance % terminals < size) != (side > 0):
                        continue
                wanted[i] = target
                answers += askers[target] == 0
                askers[target] += 1
            if answers:
                break
        else:
            return flat[:start], tree[:start], lengths, keys, values, row

        # draw the answer first, then one of its queries
        value, skip = 0, below(words[at], answers)
        while skip or not askers[value]:
            skip -= askers[value] > 0
            value += 1
        asker, skip = 0, below(words[at + 1], askers[value])
        while skip or wanted[asker] != value:
            skip -= wanted[asker] == value
            asker += 1

        # lay the document out
        lengths[row], keys[row], values[row] = count + 3, asker + 1, value + 1
        if start + count + 3 > len(flat):
            flat, tree = _longer(flat, max_symbols + 3), _longer(tree, max_symbols + 3)
        flat[start], tree[start] = BOS, -1
        for i in range(count):
            flat[start + 1 + i] = FIRST_SYMBOL + symbols[i]
            tree[start + 1 + i] = parents[i] + 1 if parents[i] >= 0 else -1
        start += count + 3
        flat[start - 2], flat[start - 1] = DIVIDER, FIRST_SYMBOL + symbols[asker]
        tree[start - 2], tree[start - 1] = -1, -1
    return flat[:start], tree[:start], lengths, keys, values, -1


@njit(cache=True)
def _longer(array, more):
    longer = np.empty(2 * len(array) + more, array.dtype)
    longer[: len(array)] = array
    return longer
