"""A probabilistic context-free grammar in Greibach form (paper §5.1, appendix B).

    X → Y₁ … Yₙ a    (head="right";  X → a Y₁ … Yₙ with head="left")

Each Y is a terminal or a nonterminal of greater depth score, so that no derivation recurses. The
head a is drawn from a distribution of X's own. It is the parent of the symbols beside it: of the
terminals themselves, and of the heads of what the nonterminals expand to.

A distribution over m outcomes is m−1 ascending cuts of 0 … 2³²: one random word picks one outcome,
without floating point. Cuts drawn uniformly and sorted are a uniform Dirichlet.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int32, UInt32
from numpy import ndarray

from mecheval.tasks.philox import CHUNK, Stream, key_of, words

Head = Literal["left", "right"]


@dataclass(frozen=True)
class Grammar:
    """A grammar as arrays; symbols below `terminals` are terminals, the others nonterminals.

    Examples
    --------
    >>> from mecheval import Treecall
    >>> grammar = Treecall(terminals=5, nonterminals=3).grammar
    >>> grammar.terminals, len(grammar.bodies)
    (5, 3)
    """

    terminals: int
    nonterminals: int
    head: Head
    depth: Int32[ndarray, " nonterminals"]
    rule_start: Int32[ndarray, " nonterminals_and_end"]  # where the rules of each X begin
    rule_cuts: UInt32[ndarray, " rules"]  # one per rule; the last of each nonterminal is never read
    body_start: Int32[ndarray, " rules_and_end"]
    body: Int32[ndarray, " symbols"]
    head_cuts: UInt32[ndarray, "nonterminals cuts"]

    @cached_property
    def bodies(self) -> list[list[list[int]]]:
        """The right-hand sides of every nonterminal's rules, without their heads."""
        starts = zip(self.body_start, self.body_start[1:], strict=False)
        bodies = [self.body[a:b].tolist() for a, b in starts]
        return [bodies[a:b] for a, b in zip(self.rule_start, self.rule_start[1:], strict=False)]

    @cached_property
    def rule_cut_lists(self) -> list[list[int]]:
        starts = zip(self.rule_start, self.rule_start[1:], strict=False)
        return [self.rule_cuts[a : b - 1].tolist() for a, b in starts]

    def head_cut_list(self, nonterminal: int) -> list[int]:
        if nonterminal not in self._head_cut_lists:
            self._head_cut_lists[nonterminal] = self.head_cuts[nonterminal].tolist()
        return self._head_cut_lists[nonterminal]

    @cached_property
    def _head_cut_lists(self) -> dict[int, list[int]]:
        return {}

    def rule_probabilities(self, nonterminal: int) -> Float[ndarray, " rules"]:
        return probabilities(self.rule_cut_lists[nonterminal])

    def head_probabilities(self, nonterminal: int) -> Float[ndarray, " terminals"]:
        return probabilities(self.head_cut_list(nonterminal))

    @cached_property
    def for_kernel(self) -> tuple[Any, ...]:
        """The arrays for the kernel, and a guide into each nonterminal's head cuts.

        The guide counts the cuts at or before each of 2ᵇ equal steps.
        """
        bits = self.terminals.bit_length() + 1
        steps = np.arange(2**bits, dtype=np.uint64) << np.uint64(32 - bits)
        counts = [np.searchsorted(cuts, steps, side="right") for cuts in self.head_cuts]
        guide = np.stack(counts).astype(np.int32)
        rules = (self.rule_start, self.rule_cuts, self.body_start, self.body)
        return (
            self.terminals,
            self.nonterminals,
            self.head == "right",
            *rules,
            self.head_cuts,
            guide,
            np.uint32(32 - bits),
        )

    @cached_property
    def lengths(self) -> tuple[int, int]:
        """The fewest and the most symbols a derivation can have."""
        shortest, longest = [0] * self.nonterminals, [0] * self.nonterminals
        for x in np.argsort(-self.depth):  # deepest first: a rule uses deeper nonterminals only
            for known, best in ((shortest, min), (longest, max)):
                sizes = [
                    1 + sum(1 if s < self.terminals else known[s - self.terminals] for s in body)
                    for body in self.bodies[x]
                ]
                known[x] = best(sizes)
        return min(shortest), max(longest)


def draw_grammar(
    *,
    terminals: int,
    nonterminals: int,
    max_depth: int,
    max_rhs: int,
    max_rules: int,
    terminal_weight: float,
    head: Head,
    grammar_seed: int,
) -> Grammar:
    """Draw the grammar that these settings determine."""
    sizes = (terminals, nonterminals, max_depth, max_rhs, max_rules)
    key = key_of("grammar", *sizes, terminal_weight, head, grammar_seed)
    rng = Stream(key, 0)
    depth = np.array([1 + rng.below(max_depth) for _ in range(nonterminals)], np.int32)
    rule_start, body_start = [0], [0]
    rule_cuts: list[int] = []
    body: list[int] = []
    for x in range(nonterminals):
        deeper = np.flatnonzero(depth > depth[x]).tolist()
        # appendix C: r_Σ is the weight of all terminals together, against one for each nonterminal
        terminal_cut = round(2**32 * terminal_weight / (terminal_weight + len(deeper)))
        rules = 1 + rng.below(max_rules)
        rule_cuts += [*sorted(rng.word() for _ in range(rules - 1)), 0]
        for _ in range(rules):
            for _ in range(1 + rng.below(max_rhs - 1)):
                if rng.word() < terminal_cut:
                    body.append(rng.below(terminals))
                else:
                    body.append(terminals + deeper[rng.below(len(deeper))])
            body_start.append(len(body))
        rule_start.append(rule_start[-1] + rules)
    chunks = range(-(-(terminals - 1) // CHUNK))
    drawn = [words(key, 1 + x, 0, chunks)[: terminals - 1] for x in range(nonterminals)]
    return Grammar(
        terminals=terminals,
        nonterminals=nonterminals,
        head=head,
        depth=depth,
        rule_start=np.array(rule_start, np.int32),
        rule_cuts=np.array(rule_cuts, np.uint32),
        body_start=np.array(body_start, np.int32),
        body=np.array(body, np.int32),
        head_cuts=np.stack([np.sort(cuts) for cuts in drawn]),
    )


def probabilities(cuts: list[int]) -> Float[ndarray, " outcomes"]:
    return np.diff([0, *cuts, 2**32]) / 2**32
