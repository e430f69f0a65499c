"""Both tasks in plain Python, one document at a time: the compiled kernels are tested against this.

With a `philox.Stream` as `rng` the documents are the kernels' own, choice for choice.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol, runtime_checkable

from mecheval.tasks.documents import BOS, DIVIDER, FIRST_SYMBOL
from mecheval.tasks.grammar import Grammar

MIN_SYMBOLS = 3  # shorter strings of the grammar are rejected
Asks = Callable[[int, int], bool]  # may this (query symbol, answer symbol) be asked about?


@runtime_checkable
class Choices(Protocol):
    """A source of random choices."""

    def below(self, n: int) -> int: ...
    def pick(self, cuts: Sequence[int]) -> int: ...


@dataclass(frozen=True)
class Document:
    """One document as lists."""

    tokens: list[int]
    key: int
    value: int
    queries: list[int]
    answers: list[int]
    parents: list[int] | None = None


@dataclass(frozen=True)
class PlainDocument:
    """One document as lists, of a task with roles of its own."""

    tokens: list[int]
    roles: dict[str, int]
    queries: list[int]
    answers: list[int]


def recall_ref(
    rng: Choices,
    symbols: int,
    min_pairs: int,
    pairs: int,
    queries: int,
    reverse: bool,
    passes: int,
    gaps: Sequence[int],
    filler: int,
    asks: Asks,
) -> Document | None:
    """Draw BOS k₁ v₁ … kₙ vₙ DIVIDER q₁ …; None if too few pairs may be asked about."""
    n = min_pairs + rng.below(pairs - min_pairs + 1)
    keys, values = Pack(symbols), Pack(symbols)
    drawn = [(keys.draw(rng), values.draw(rng)) for _ in range(n)]
    eligible = [i for i, (k, v) in enumerate(drawn) if (asks(v, k) if reverse else asks(k, v))]
    if len(eligible) < queries:
        return None
    pack = Pack(len(eligible))
    asked = [eligible[pack.draw(rng)] for _ in range(queries)]
    slots = sorted(_draw_by_weight(rng, gaps, queries)) if gaps else []

    reading = []
    for k, v in drawn:
        reading += [FIRST_SYMBOL + k, FIRST_SYMBOL + symbols + v]
    tokens = [BOS, *passes * reading, DIVIDER]
    key_at, value_at = (2, 1) if reverse else (1, 2)
    first = len(tokens)
    positions = [first + 2 * slot for slot in slots] or list(range(first, first + queries))
    questions = {place: tokens[2 * i + key_at] for place, i in zip(positions, asked, strict=True)}
    for place in range(first, positions[-1] + 1):
        fill = place not in questions
        tokens.append(FIRST_SYMBOL + 2 * symbols + rng.below(filler) if fill else questions[place])
    last = 2 * (asked[0] + (passes - 1) * n)  # of the last reading
    answers = [tokens[2 * i + value_at] for i in asked]
    return Document(tokens, last + key_at, last + value_at, positions, answers)


def _draw_by_weight(rng: Choices, weights: Sequence[int], count: int) -> list[int]:
    """Draw some places without replacement, each time by the weights of those that are left."""
    left = list(weights)
    for _ in range(count):
        place = bisect_right(list(accumulate(left)), rng.below(sum(left)))
        left[place] = 0
    return [place for place, weight in enumerate(left) if not weight]


class Pack:
    """The numbers 0 … n−1, drawn without replacement by a shuffle that stores only its moves."""

    def __init__(self, n: int) -> None:
        self.n, self.drawn = n, 0
        self.moved: dict[int, int] = {}

    def draw(self, rng: Choices) -> int:
        place = self.drawn + rng.below(self.n - self.drawn)
        card = self.moved.get(place, place)
        self.moved[place] = self.moved.get(self.drawn, self.drawn)
        self.drawn += 1
        return card


@dataclass
class Node:
    """One symbol of a derivation. Its parent is the head of the production it came from."""

    symbol: int
    parent: "Node | None"
    position: int = -1
    rightmost_child: "Node | None" = None


class TooLong(Exception):
    """A derivation outgrew the document."""


def derive_ref(rng: Choices, grammar: Grammar, max_symbols: int) -> list[Node] | None:
    """Derive a string from a uniform start, each symbol with its parent; None if it is too long."""
    nodes: list[Node] = []
    promised = 1  # symbols that the productions so far will place at the least

    def place(node: Node) -> None:
        node.position = len(nodes)
        nodes.append(node)
        if node.parent:
            node.parent.rightmost_child = node

    def expand(nonterminal: int, parent: Node | None) -> None:
        nonlocal promised
        rule = rng.pick(grammar.rule_cut_lists[nonterminal])
        head = Node(rng.pick(grammar.head_cut_list(nonterminal)), parent)
        body = grammar.bodies[nonterminal][rule]
        promised += len(body)
        if promised > max_symbols:
            raise TooLong
        if grammar.head == "left":
            place(head)
        for symbol in body:
            if symbol < grammar.terminals:
                place(Node(symbol, head))
            else:
                expand(symbol - grammar.terminals, head)
        if grammar.head == "right":
            place(head)

    try:
        expand(rng.below(grammar.nonterminals), None)
    except TooLong:
        return None
    return nodes


def related(node: Node, query: str) -> Node | None:
    """Return the node that a query about this one asks for."""
    if query == "child":
        return node.rightmost_child
    if node.parent is None or query == "parent":
        return node.parent
    return node.parent.rightmost_child if query == "sibling" else node.parent.parent


def treecall_ref(
    rng: Choices, grammar: Grammar, max_symbols: int, query: str, asks: Asks
) -> Document | None:
    """Draw BOS, a string, DIVIDER, q; None if the string does not fit or has no query."""
    nodes = derive_ref(rng, grammar, max_symbols)
    if nodes is None or len(nodes) < MIN_SYMBOLS:
        return None
    rightmost = {node.symbol: node for node in nodes}
    askable: dict[int, list[Node]] = {}  # the nodes that ask for each possible answer
    for node in nodes:
        target = related(node, query)
        if rightmost[node.symbol] is node and target and asks(node.symbol, target.symbol):
            askable.setdefault(target.position, []).append(node)
    if not askable:
        return None
    # §5.1 weights pairs inversely by the parent's child count: draw the answer, then the asker
    target = nodes[sorted(askable)[rng.below(len(askable))]]
    askers = askable[target.position]
    key = askers[rng.below(len(askers))]

    string = [FIRST_SYMBOL + node.symbol for node in nodes]
    tokens = [BOS, *string, DIVIDER, FIRST_SYMBOL + key.symbol]
    parents = [-1, *(1 + node.parent.position if node.parent else -1 for node in nodes), -1, -1]
    answers = [FIRST_SYMBOL + target.symbol]
    queries = [len(tokens) - 1]
    return Document(tokens, 1 + key.position, 1 + target.position, queries, answers, parents)
