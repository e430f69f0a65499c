"""Recall in several hops: the k-th successor of a node on a cycle.

BOS x₁ y₁ … xₙ yₙ DIVIDER ⟨k⟩ x → y

Follows Depo of PhysicsLM4: the edges of a cycle in random order; a question names a node and how
many edges to follow. Each hop looks up what the one before has found.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import fsum, sqrt
from typing import Annotated, ClassVar

import numpy as np
from jaxtyping import Bool, Int32
from numpy import ndarray

from mecheval.core.options import Field, settle
from mecheval.tasks.corruption import Role, Seed, corrupt
from mecheval.tasks.documents import (
    BOS,
    DIVIDER,
    FIRST_SYMBOL,
    NO_ANSWER,
    SPECIALS,
    Documents,
    lay_out,
    roles_of,
)
from mecheval.tasks.lookup import last_match
from mecheval.tasks.philox import key_of
from mecheval.tasks.reference import Choices, Pack, PlainDocument
from mecheval.tasks.splits import Split
from mecheval.tasks.task import numbers, spec_of

Nodes = Annotated[int, Field(ge=2, le=2**10)]


def _symbols_suffice(nodes: int, vocab: int) -> str | None:
    if nodes > vocab:
        return f"nodes={nodes} must be at most vocab={vocab}, the names of nodes"
    return None


def _range_ascends(min_nodes: int | None, nodes: int) -> str | None:
    if min_nodes and min_nodes > nodes:
        return f"min_nodes={min_nodes} must be at most nodes={nodes}"
    return None


@dataclass(frozen=True, kw_only=True)
class Hops:
    """Recall in several hops: the edges of a cycle, then `⟨k⟩ x`; answer the k-th successor of x.

    Parameters
    ----------
    nodes
        Nodes of the cycle.
    min_nodes
        Fewest nodes, if they vary: n of them with a probability ∝ 1/(n + √nodes).
    hops
        Most hops of a question; k is uniform from 1.
    queries
        Questions of a document.
    vocab
        Names of nodes.

    Examples
    --------
    >>> from mecheval import build_task
    >>> task = build_task("hops:nodes=4,hops=2,queries=1,vocab=16")
    >>> docs = task.documents(0, "test", 0, 100)
    >>> bool((docs.at("value") == docs.answer).all())
    True
    """

    nodes: Annotated[Nodes, Field(description="nodes of the cycle")] = 75
    min_nodes: Annotated[Nodes | None, Field(description="fewest nodes, if they vary")] = None
    hops: Annotated[int, Field(ge=1, le=64, description="most hops of a question")] = 8
    queries: Annotated[int, Field(ge=1, le=2**10, description="questions of a document")] = 10
    vocab: Annotated[int, Field(ge=2, le=2**20, description="names of nodes")] = 128

    constraints: ClassVar[tuple[Callable[..., str | None], ...]] = (
        _symbols_suffice,
        _range_ascends,
    )
    variables: ClassVar[tuple[Role, ...]] = ("key", "value", "query", "hop", "last_key", "count")

    def __post_init__(self) -> None:
        settle(self)

    @cached_property
    def key(self) -> str:
        return spec_of("hops", self).key

    @property
    def vocab_size(self) -> int:
        return FIRST_SYMBOL + self.vocab + self.hops

    @property
    def max_len(self) -> int:
        return 2 + 2 * self.nodes + 2 * self.queries

    @cached_property
    def _cuts(self) -> list[int]:
        """The words at which the number of nodes grows; rounded, so that all machines agree."""
        fewest = self.min_nodes or self.nodes
        weights = [1 / (n + sqrt(self.nodes)) for n in range(fewest, self.nodes + 1)]
        return [round(2**32 * part / fsum(weights)) for part in accumulate(weights)][:-1]

    def documents(self, seed: Seed, split: Split, start: int, stop: int) -> Documents:
        from mecheval.tasks.kernels.hops import draw_hops

        index = numbers(seed, split, start, stop)
        tokens = np.empty((len(index), self.max_len), np.int32)
        queries, answers = np.empty((2, len(index), self.queries), np.int32)
        edges = np.empty((len(index), 2), np.int32)
        stream = np.uint64(key_of(self.key, seed, split))
        shape = (self.vocab, self.min_nodes or self.nodes, np.array(self._cuts, np.int64))
        draw_hops(stream, index, *shape, self.hops, edges, tokens, queries, answers)
        first, last = edges.T
        roles = roles_of(first, last + 1, queries[:, 0])
        roles |= {"divider": queries[:, 0] - 2, "hop": first + 1, "last_key": last}
        roles["count"] = queries[:, 0] - 1
        return lay_out(index, tokens, roles, queries, answers)

    def reference(self, rng: Choices, split: Split) -> PlainDocument:
        """Draw one document in plain Python."""
        return hops_ref(
            rng, self.vocab, self.min_nodes or self.nodes, self._cuts, self.hops, self.queries
        )

    corrupt = corrupt

    def symbols(self, role: Role) -> range:
        nodes = range(FIRST_SYMBOL, FIRST_SYMBOL + self.vocab)
        return range(nodes.stop, nodes.stop + self.hops) if role == "count" else nodes

    def partners(self, docs: Documents, role: Role) -> Bool[ndarray, "n time"]:
        """Mark the ends of edges on the same side; for the count, those of the questions."""
        place = np.arange(docs.tokens.shape[1])
        before = place < docs.roles["divider"][:, None]
        if role == "count":
            return ~before & np.isin(docs.tokens, self.symbols(role))
        side = 0 if role in ("value", "hop") else 1
        return before & (place > 0) & (place % 2 == side)

    def answers(self, docs: Documents) -> Int32[ndarray, "n queries"]:
        sources = self.partners(docs, "key")
        asked = np.take_along_axis(docs.tokens, docs.queries, axis=1)
        counts = np.take_along_axis(docs.tokens, docs.queries - 1, axis=1)
        counts = counts - self.symbols("count").start + 1
        for step in range(counts.max()):
            for j in range(asked.shape[1]):
                last, rows = last_match(sources & (docs.tokens == asked[:, j, None]))
                successor = np.full(len(docs), NO_ANSWER, np.int32)
                successor[rows] = docs.tokens[rows, last[rows] + 1]
                asked[:, j] = np.where(step < counts[:, j], successor, asked[:, j])
        return asked

    def word(self, token: int) -> str:
        number = token - FIRST_SYMBOL
        if number < 0:
            return SPECIALS[token]
        return f"n{number}" if number < self.vocab else f"hop{number - self.vocab + 1}"


def hops_ref(
    rng: Choices, symbols: int, nodes: int, cuts: Sequence[int], hops: int, queries: int
) -> PlainDocument:
    """Draw BOS, the edges of a cycle in random order, DIVIDER and questions."""
    n = nodes + rng.pick(cuts)
    names, order = Pack(symbols), Pack(n)
    cycle = [FIRST_SYMBOL + names.draw(rng) for _ in range(n)]
    edges = [order.draw(rng) for _ in range(n)]
    tokens = [BOS]
    for edge in edges:
        tokens += [cycle[edge], cycle[(edge + 1) % n]]
    tokens.append(DIVIDER)
    asked = [(rng.below(n), rng.below(hops)) for _ in range(queries)]
    positions = [len(tokens) + 1 + 2 * j for j in range(queries)]
    for start, count in asked:
        tokens += [FIRST_SYMBOL + symbols + count, cycle[start]]
    answers = [cycle[(start + count + 1) % n] for start, count in asked]
    start, count = asked[0]
    first, last = 1 + 2 * edges.index(start), 1 + 2 * edges.index((start + count) % n)
    roles = {"key": first, "hop": first + 1, "last_key": last, "value": last + 1}
    return PlainDocument(tokens, {**roles, "count": positions[0] - 1}, positions, answers)
