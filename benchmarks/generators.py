"""Three plain generators of documents, by the random numbers they use.

twin      the reference implementation of the task: the same documents, in plain Python
random    the same implementation with Python's `random`, which costs next to nothing
numpy     a generator as is usual in this field: numpy's `choice` for every draw, all pairs examined
"""

import random
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from mecheval.tasks.philox import Stream, key_of
from mecheval.tasks.recall import Recall
from mecheval.tasks.treecall import Treecall

BuiltinTask = Recall | Treecall


def draw_by_twin(task: BuiltinTask, n: int) -> None:
    key = key_of(task.key, 0, "train")
    for i in range(n):
        attempt = 0
        while task.reference(Stream(key, i, attempt), "train") is None:
            attempt += 1


def draw_by_random(task: BuiltinTask, n: int) -> None:
    rng: Any = PythonRandom(0)
    for _ in range(n):
        while task.reference(rng, "train") is None:
            pass


def draw_by_numpy(task: BuiltinTask, n: int) -> None:
    rng = np.random.default_rng(0)
    draw: Any = numpy_recall if isinstance(task, Recall) else numpy_treecall
    for _ in range(n):
        while draw(task, rng) is None:
            pass


class PythonRandom(random.Random):
    def below(self, n: int) -> int:
        return self.randrange(n)

    def pick(self, cuts: Sequence[int]) -> int:
        return bisect_right(cuts, self.getrandbits(32))


def numpy_recall(task: Recall, rng: np.random.Generator) -> dict[str, Any]:
    half = task.vocab // 2
    keys, values = (rng.choice(half, size=task.pairs, replace=False) for _ in range(2))
    pairs = zip(3 + keys, 3 + half + values, strict=True)
    tokens = [1, *(int(token) for pair in pairs for token in pair), 2]
    key = 1 + 2 * int(rng.integers(task.pairs))
    tokens.append(tokens[key])
    return {"tokens": tokens, "roles": {"key": key, "value": key + 1}, "answer": tokens[key + 1]}


def numpy_treecall(task: Treecall, rng: np.random.Generator) -> dict[str, Any] | None:
    nodes = _derive(task, rng)
    if nodes is None:
        return None
    pairs = [
        (child, parent)
        for parent in range(len(nodes))
        for child in range(len(nodes))
        if nodes[child]["parent"] is not None
        and nodes[child]["parent"] == nodes[parent]["head"]
        and not any(other["symbol"] == nodes[child]["symbol"] for other in nodes[child + 1 :])
    ]
    if len(nodes) < 3 or not pairs:
        return None
    value = rng.choice(sorted({parent for _, parent in pairs}))
    key = rng.choice([child for child, parent in pairs if parent == value])
    tokens = [1, *(3 + node["symbol"] for node in nodes), 2, 3 + nodes[key]["symbol"]]
    return {
        "tokens": tokens,
        "roles": {"key": 1 + key, "value": 1 + value},
        "answer": 3 + nodes[value]["symbol"],
    }


def _derive(task: Treecall, rng: np.random.Generator) -> list[dict[str, Any]] | None:
    """Return the symbols of a derivation, or None if there are too many.

    Each has the number of the head that it is, if any, and that of its parent.
    """
    grammar = task.grammar
    nodes: list[dict[str, Any]] = []
    start = grammar.terminals + int(rng.integers(grammar.nonterminals))
    stack: list[tuple[int, Any]] = [(start, None)]
    heads = 0
    while stack:
        if len(nodes) > task.max_symbols:
            return None
        symbol, parent = stack.pop()
        if symbol < grammar.terminals:
            head = None
            if symbol < 0:
                symbol, (head, parent) = -1 - symbol, parent
            nodes.append({"symbol": symbol, "head": head, "parent": parent})
            continue
        x = symbol - grammar.terminals
        rule = rng.choice(len(grammar.bodies[x]), p=grammar.rule_probabilities(x))
        body = grammar.bodies[x][rule]
        head_symbol = int(rng.choice(grammar.terminals, p=grammar.head_probabilities(x)))
        stack.append((-1 - head_symbol, (heads, parent)))
        stack += [(child, heads) for child in reversed(body)]
        heads += 1
    return nodes
