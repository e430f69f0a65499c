"""Associative Treecall (paper §5.1, appendix B): recall over the latent tree of a string.

    BOS s₁ … sₙ DIVIDER q → answer

The role `key` is the rightmost occurrence of the symbol asked about; `value` is the related symbol.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, ClassVar, Literal, get_args

import numpy as np
from jaxtyping import Bool, Int32
from numpy import ndarray

from mecheval.core.errors import InvalidInput
from mecheval.core.options import Field, settle
from mecheval.tasks.corruption import Role, Seed, corrupt
from mecheval.tasks.documents import FIRST_SYMBOL, NO_ANSWER, SPECIALS, Documents, roles_of
from mecheval.tasks.grammar import Grammar, Head, draw_grammar
from mecheval.tasks.philox import Stream, key_of
from mecheval.tasks.reference import MIN_SYMBOLS, Choices, Document, derive_ref, treecall_ref
from mecheval.tasks.splits import HeldOut, HeldOutShare, Split, share_complaint
from mecheval.tasks.task import MAX_ATTEMPTS, SPLITS, numbers, spec_of

Query = Literal["parent", "sibling", "child", "grandparent"]
QUERIES = get_args(Query)
AROUND = 3  # BOS, DIVIDER and the query
MIN_LEN = MIN_SYMBOLS + AROUND
MAX_HEADS, MAX_RULES = 2**22, 2**17
Length = Annotated[int, Field(ge=MIN_LEN, le=2**15 - 1)]
Weight = Annotated[float, Field(gt=0, le=1e6)]
PROBES, NEEDED, PROBED_WORDS = 500, 4, 100_000  # 4 of at most 500 draws must be usable


def _heads_fit(terminals: int, nonterminals: int) -> str | None:
    if terminals * nonterminals > MAX_HEADS:
        limit = MAX_HEADS // nonterminals
        return f"terminals={terminals} must be at most {limit} with nonterminals={nonterminals}"
    return None


def _rules_fit(nonterminals: int, max_rules: int, max_rhs: int) -> str | None:
    if nonterminals * max_rules * max_rhs > MAX_RULES:
        limit = MAX_RULES // (max_rules * max_rhs)
        others = f"max_rules={max_rules}, max_rhs={max_rhs}"
        return f"nonterminals={nonterminals} must be at most {limit} with {others}"
    return None


def _types_divide(held_out: float, terminals: int) -> str | None:
    return share_complaint(held_out, terminals, "answers to each symbol")


@dataclass(frozen=True, kw_only=True)
class Treecall:
    """Associative Treecall: a string of a grammar, then one of its symbols; answer its parent.

    Parameters
    ----------
    terminals
        Symbols in documents.
    nonterminals
        Nonterminals of the grammar.
    max_depth
        Deepest nesting.
    max_rhs
        Most symbols of a production.
    max_rules
        Most productions of a nonterminal.
    terminal_weight
        Weight of all terminals against 1 for each nonterminal.
    head
        Side on which the parent stands.
    grammar_seed
        Which grammar of this kind.
    max_len
        Longest document in tokens.
    query
        Relation of the answer to the query.
    held_out
        Share of (query, answer) types that only test asks about.

    Examples
    --------
    >>> from mecheval import Treecall
    >>> task = Treecall(query="sibling")
    >>> docs = task.documents(0, "test", 0, 100)
    >>> docs.parents.shape == docs.tokens.shape, bool((docs.at("value") == docs.answer).all())
    (True, True)
    """

    terminals: Annotated[int, Field(ge=1, le=2**16, description="symbols in documents, |Σ|")] = 20
    nonterminals: Annotated[int, Field(ge=1, le=2**12, description="nonterminals, |N|")] = 40
    max_depth: Annotated[int, Field(ge=1, le=100, description="deepest nesting, d_max")] = 10
    max_rhs: Annotated[int, Field(ge=2, le=64, description="symbols of a production, L_max")] = 5
    max_rules: Annotated[int, Field(ge=1, le=64, description="most productions each, R_max")] = 5
    terminal_weight: Annotated[Weight, Field(description="terminals against 1 each, r_Σ")] = 20.0
    head: Annotated[Head, Field(description="side on which the parent stands, H")] = "right"
    grammar_seed: Annotated[Seed, Field(description="which grammar of this kind")] = 0
    max_len: Annotated[Length, Field(description="longest document in tokens")] = 1024
    query: Annotated[Query, Field(description="relation of the answer to the query")] = "parent"
    held_out: HeldOutShare = 0.0

    constraints: ClassVar = (_heads_fit, _rules_fit, _types_divide)

    def __post_init__(self) -> None:
        settle(self)
        self._reject_impossible_settings()

    @cached_property
    def key(self) -> str:
        return spec_of("treecall", self).key

    @property
    def vocab_size(self) -> int:
        return FIRST_SYMBOL + self.terminals

    @property
    def max_symbols(self) -> int:
        return self.max_len - AROUND

    @cached_property
    def grammar(self) -> Grammar:
        return draw_grammar(
            terminals=self.terminals,
            nonterminals=self.nonterminals,
            max_depth=self.max_depth,
            max_rhs=self.max_rhs,
            max_rules=self.max_rules,
            terminal_weight=self.terminal_weight,
            head=self.head,
            grammar_seed=self.grammar_seed,
        )

    @cached_property
    def types(self) -> HeldOut:
        return HeldOut.draw(self.key, self.terminals, self.held_out)

    def documents(self, seed: Seed, split: Split, start: int, stop: int) -> Documents:
        from mecheval.tasks.kernels.treecall import draw_treecall

        index = numbers(seed, split, start, stop)
        stream = np.uint64(key_of(self.key, seed, split))
        query = QUERIES.index(self.query)
        limits = (self.max_symbols, MAX_ATTEMPTS)
        flat, parents, lengths, key, value, failed = draw_treecall(
            stream, index, self.grammar.for_kernel, query, self.types.for_kernel(split), *limits
        )
        if failed >= 0:
            field = f"grammar_seed={self.grammar_seed}"
            raise InvalidInput(f"treecall: {field}: {MAX_ATTEMPTS} draws gave no document")
        at = lengths - 1
        answers = flat[np.cumsum(lengths) - lengths + value]
        roles = roles_of(key, value, at)
        return Documents(index, flat, lengths, roles, at[:, None], answers[:, None], parents)

    corrupt = corrupt

    def symbols(self, role: Role) -> range:
        return range(FIRST_SYMBOL, self.vocab_size)

    def partners(self, docs: Documents, role: Role) -> Bool[ndarray, "n time"]:
        """Mark, for a value, any symbol; otherwise the nodes whose own answer differs."""
        if role == "value":
            return np.arange(docs.tokens.shape[1]) < docs.roles["divider"][:, None]
        related = self._related(docs)
        answers = np.take_along_axis(docs.tokens, np.maximum(related, 0), axis=1)
        return (related >= 0) & (answers != docs.answer[:, None])

    def answers(self, docs: Documents) -> Int32[ndarray, "n queries"]:
        rows, width = np.arange(len(docs)), docs.tokens.shape[1]
        symbols = np.arange(width) < docs.roles["divider"][:, None]
        asked = symbols & (docs.tokens == docs.at("query")[:, None])
        last = width - 1 - np.argmax(asked[:, ::-1], axis=1)
        target = np.where(asked.any(axis=1), self._related(docs)[rows, last], -1)
        answers = np.where(target >= 0, docs.tokens[rows, target], NO_ANSWER)
        return answers.astype(np.int32)[:, None]

    def word(self, token: int) -> str:
        return f"t{token - FIRST_SYMBOL}" if token >= FIRST_SYMBOL else SPECIALS[token]

    def _related(self, docs: Documents) -> Int32[ndarray, "n time"]:
        """Return, for each position, the position of its answer, or −1."""
        assert docs.parents is not None
        parents = docs.parents.astype(np.int32)
        if self.query == "parent":
            return parents
        if self.query == "grandparent":
            return _above(parents, parents)
        rightmost_child = np.full_like(parents, -1)
        rows, children = np.nonzero(parents >= 0)
        at = (rows, parents[rows, children])
        np.maximum.at(rightmost_child, at, children.astype(np.int32))
        return rightmost_child if self.query == "child" else _above(parents, rightmost_child)

    def _reject_impossible_settings(self) -> None:
        shortest, longest = self.grammar.lengths
        if longest < MIN_SYMBOLS:
            need = (
                f"must give strings of {MIN_SYMBOLS} symbols or more, and the longest has {longest}"
            )
            fix = (
                f"take another seed, or raise max_rhs={self.max_rhs} or max_rules={self.max_rules}"
            )
            raise InvalidInput(f"grammar_seed={self.grammar_seed} {need}: {fix}")
        if shortest > self.max_symbols:
            limit = f"{shortest + AROUND}, the shortest document of this grammar"
            raise InvalidInput(f"max_len={self.max_len} must be at least {limit}")
        for split in SPLITS[::2] if self.held_out else SPLITS[:1]:  # dev asks what train asks
            key, drawn, usable, words = key_of(self.key, "probe", split), 0, 0, 0
            while usable < NEEDED:
                if drawn == PROBES or words > PROBED_WORDS:
                    raise InvalidInput(self._complaint(split, key, drawn, usable))
                rng = Stream(key, drawn)
                usable += self.reference(rng, split) is not None
                drawn, words = drawn + 1, words + rng.drawn

    def reference(self, rng: Choices, split: Split) -> Document | None:
        """Attempt one document in plain Python; None if the draw is rejected."""
        asks = partial(self.types.asks, split)
        return treecall_ref(rng, self.grammar, self.max_symbols, self.query, asks)

    def _complaint(self, split: Split, key: int, drawn: int, usable: int) -> str:
        """Return an error line that names the field because of which most draws are rejected."""
        strings = [derive_ref(Stream(key, i), self.grammar, self.max_symbols) for i in range(drawn)]
        of = f"{drawn} strings of this grammar (grammar_seed={self.grammar_seed})"
        long = strings.count(None)
        short = sum(string is not None and len(string) < MIN_SYMBOLS for string in strings)
        if drawn - long - short < NEEDED and long > short:
            problem = f"of {of} {long} have more than {self.max_symbols} symbols"
            return f"max_len={self.max_len} must be larger: {problem}"
        if drawn - long - short < NEEDED:
            problem = f"of {of} {short} have fewer than {MIN_SYMBOLS} symbols"
            return f"max_rhs={self.max_rhs} must be larger: {problem}"
        field = f"held_out={self.held_out}" if self.held_out else f"query={self.query}"
        return f"{field} must leave {split} something to ask: of {of} it can ask about {usable}"


def _above(
    parents: Int32[ndarray, "n time"], positions: Int32[ndarray, "n time"]
) -> Int32[ndarray, "n time"]:
    """Return what `positions` has at each position's parent, −1 without one."""
    at_parent = np.take_along_axis(positions, np.maximum(parents, 0), axis=1)
    return np.where(parents >= 0, at_parent, -1)
