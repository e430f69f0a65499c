"""Check facts about documents without the code that drew them, and the error of numbers."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from mecheval.tasks.documents import BOS, DIVIDER, FIRST_SYMBOL, Documents
from mecheval.tasks.grammar import Grammar
from mecheval.tasks.philox import Stream, key_of
from mecheval.tasks.reference import Document


def twin(task, seed: int, split: str, index: int) -> Document:
    """The document as the plain generator draws it."""
    for attempt in range(10_000):
        document = task.reference(Stream(key_of(task.key, seed, split), index, attempt), split)
        if document is not None:
            return document
    raise AssertionError("no document")


def assert_drawn_alike(task, seed: int, split: str, start: int, stop: int) -> None:
    docs = task.documents(seed, split, start, stop)
    for i in range(len(docs)):
        plain = twin(task, seed, split, start + i)
        length = docs.lengths[i]
        assert docs.tokens[i, :length].tolist() == plain.tokens
        assert (docs.tokens[i, length:] == 0).all()
        roles = getattr(plain, "roles", None) or {"key": plain.key, "value": plain.value}
        assert {role: docs.roles[role][i] for role in roles} == roles
        assert docs.queries[i].tolist() == plain.queries
        assert docs.answers[i].tolist() == plain.answers
        if docs.parents is not None:
            assert docs.parents[i, :length].tolist() == plain.parents


def assert_recall_facts(task, docs: Documents) -> None:
    half = task.vocab // 2
    for i in range(len(docs)):
        tokens = docs.tokens[i, : docs.lengths[i]].tolist()
        roles = {role: int(position[i]) for role, position in docs.roles.items()}
        divider = tokens.index(DIVIDER)
        readings = (divider - 1) // task.passes
        for start in range(1, divider, readings):
            assert tokens[start : start + readings] == tokens[1 : 1 + readings]
        keys, values = tokens[1 : 1 + readings : 2], tokens[2 : 1 + readings : 2]
        pairs = len(keys)
        assert tokens[0] == BOS
        assert (task.min_pairs or task.pairs) <= pairs <= task.pairs
        assert len(values) == pairs
        assert len(set(keys)) == len(set(values)) == pairs
        assert all(FIRST_SYMBOL <= key < FIRST_SYMBOL + half for key in keys)
        assert all(FIRST_SYMBOL + half <= value < FIRST_SYMBOL + 2 * half for value in values)
        answer_to = (
            dict(zip(values, keys, strict=True))
            if task.query == "value"
            else dict(zip(keys, values, strict=True))
        )
        places = docs.queries[i].tolist()
        asked = [tokens[place] for place in places]
        fill = set(range(divider + 1, len(tokens))) - set(places)
        first_filler = FIRST_SYMBOL + 2 * half
        assert all(first_filler <= tokens[place] < task.vocab_size for place in fill)
        assert places == sorted(places)
        if task.slots:
            assert all((place - divider - 1) % 2 == 0 for place in places)
            assert (places[-1] - divider - 1) // 2 < task.slots
        else:
            assert not fill
        assert len(asked) == len(set(asked)) == task.queries
        assert [answer_to[query] for query in asked] == docs.answers[i].tolist()
        assert roles["bos"] == 0
        assert roles["divider"] == divider
        assert roles["query"] == places[0] > divider
        assert tokens[roles["key"]] == asked[0]
        assert divider - roles["key"] <= readings  # in the last reading
        if task.passes > 1:
            before = (task.passes - 1) * readings
            assert roles["first_key"] == roles["key"] - before
            assert roles["first_value"] == roles["value"] - before
        assert tokens[roles["value"]] == docs.answer[i] == answer_to[asked[0]]
        assert roles["value"] - roles["key"] == (-1 if task.query == "value" else 1)
        assert roles["next_key"] == max(roles["key"], roles["value"]) + 1
        assert roles["next_key"] == divider or tokens[roles["next_key"]] in keys


def assert_treecall_facts(task, docs: Documents) -> None:
    for i in range(len(docs)):
        tokens = docs.tokens[i, : docs.lengths[i]].tolist()
        parents = docs.parents[i, : docs.lengths[i]].tolist()
        roles = {role: int(position[i]) for role, position in docs.roles.items()}
        assert tokens[0] == BOS
        assert tokens[-2] == DIVIDER
        symbols = range(1, len(tokens) - 2)
        assert len(tokens) <= task.max_len
        assert len(symbols) >= 3
        assert [p for j, p in enumerate(parents) if j not in symbols] == [-1, -1, -1]
        assert sum(parents[j] < 0 for j in symbols) == 1
        assert_derived(task.grammar, tokens, parents)
        assert max(len(list(ancestors(j, parents))) for j in symbols) <= task.max_depth
        assert roles["bos"] == 0
        assert roles["divider"] == len(tokens) - 2
        assert roles["query"] == len(tokens) - 1
        assert roles["next_key"] == max(roles["key"], roles["value"]) + 1
        rightmost = max(j for j in symbols if tokens[j] == tokens[-1])
        assert roles["key"] == rightmost
        assert roles["value"] == target_of(rightmost, parents, task.query)
        assert docs.answer[i] == tokens[roles["value"]]


def target_of(node: int, parents: list[int], query: str) -> int:
    def children(of: int) -> list[int]:
        return [j for j in range(1, len(parents) - 2) if parents[j] == of]

    up = list(ancestors(node, parents))
    if query == "parent":
        return up[0] if up else -1
    if query == "grandparent":
        return up[1] if len(up) > 1 else -1
    if query == "sibling":
        return max(children(up[0])) if up else -1
    return max(children(node), default=-1)


def ancestors(node: int, parents: list[int]) -> Iterator[int]:
    while parents[node] >= 0:
        node = parents[node]
        yield node


def assert_derived(grammar: Grammar, tokens: list[int], parents: list[int]) -> None:
    """Some derivation of the grammar gives this string and this tree.

    Every production has a body, so a node with children heads a production, and a node without
    children is a terminal of a body.
    """
    children = defaultdict(list)
    for node in range(1, len(tokens) - 2):
        children[parents[node]].append(node)
    (root,) = children[-1]

    def span(node: int) -> list[int]:
        return sorted([node, *(j for child in children[node] for j in span(child))])

    def heads(node: int) -> set[int]:
        """The nonterminals this node can be the head of."""
        symbol = tokens[node] - FIRST_SYMBOL
        options = [
            heads(child) if children[child] else tokens[child] - FIRST_SYMBOL
            for child in children[node]
        ]
        return {
            x
            for x in range(grammar.nonterminals)
            if grammar.head_probabilities(x)[symbol] > 0
            and any(
                len(body) == len(options) and all(map(fits, body, options))
                for body, p in zip(grammar.bodies[x], grammar.rule_probabilities(x), strict=True)
                if p > 0
            )
        }

    def fits(symbol: int, option: set[int] | int) -> bool:
        return symbol == option if isinstance(option, int) else symbol - grammar.terminals in option

    assert heads(root)
    for node in [j for j in range(1, len(tokens) - 2) if children[j]]:
        inside = span(node)
        assert inside == list(range(inside[0], inside[-1] + 1)), (
            "a subtree is one stretch of the string"
        )
        assert node == (inside[-1] if grammar.head == "right" else inside[0]), (
            "the head stands on its side"
        )


def text_of(docs: Documents) -> list[bytes]:
    return [docs.tokens[i, : docs.lengths[i]].tobytes() for i in range(len(docs))]


def equal(one: Documents, other: Documents) -> bool:
    arrays = ("index", "flat", "lengths", "queries", "answers")
    same = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)
    same &= all(np.array_equal(one.roles[role], other.roles[role]) for role in one.roles)
    return same and (one.parents is None or np.array_equal(one.parents, other.parents))


def largest(x) -> float:
    """The largest magnitude, of a tensor or an array."""
    return float(np.abs(_array(x)).max())


def relative_error(found, truth, least: float = 1e-30) -> float:
    """Return the largest difference, relative to the largest magnitude or at least to `least`."""
    found, truth = _array(found), _array(truth)
    assert found.shape == truth.shape
    return largest(found - truth) / max(largest(truth), least)


def _array(x) -> np.ndarray:
    return np.asarray(x.detach().cpu() if hasattr(x, "detach") else x)
