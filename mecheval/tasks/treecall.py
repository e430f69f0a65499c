"""Associative Treecall (paper §5.1, appendix B): recall over the latent tree of a string.

    BOS s₁ … sₙ DIVIDER q → answer

The role `key` is the symbol asked about, at its rightmost occurrence; `value` is the symbol it is related to.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, ClassVar, Literal, get_args

import numpy as np
from jaxtyping import Bool, Int32
from numpy import ndarray
from pydantic import Field

from mecheval.core.errors import InvalidInput
from mecheval.core.options import settle
from mecheval.tasks.corruption import Kind, Role, Seed, corrupt
from mecheval.tasks.documents import FIRST_SYMBOL, NO_ANSWER, SPECIALS, Corrupted, Documents, roles_of
from mecheval.tasks.grammar import Grammar, Head, draw_grammar
from mecheval.tasks.philox import Stream, key_of
from mecheval.tasks.reference import MIN_SYMBOLS, Choices, Document, derive_ref, treecall_ref
from mecheval.tasks.splits import HeldOut, Split, share_complaint
from mecheval.tasks.task import MAX_ATTEMPTS, SPLITS, numbers, spec_of

Query = Literal["parent", "sibling", "child", "grandparent"]
QUERIES = get_args(Query)
AROUND = 3  # BOS, DIVIDER and the query
MIN_LEN = MIN_SYMBOLS + AROUND
MAX_HEADS, MAX_RULES = 2**22, 2**17
PROBES, WANTED, PROBED_WORDS = 500, 4, 100_000  # a setting is refused unless 4 of 500 draws can be used


def _heads_fit(terminals: int, nonterminals: int) -> str | None:
    if terminals * nonterminals > MAX_HEADS:
        return f"terminals={terminals} must be at most {MAX_HEADS // nonterminals} with nonterminals={nonterminals}"
    return None


def _rules_fit(nonterminals: int, max_rules: int, max_rhs: int) -> str | None:
    if nonterminals * max_rules * max_rhs > MAX_RULES:
        limit = MAX_RULES // (max_rules * max_rhs)
        return f"nonterminals={nonterminals} must be at most {limit} with max_rules={max_rules}, max_rhs={max_rhs}"
    return None


def _types_divide(held_out: float, terminals: int) -> str | None:
    return share_complaint(held_out, terminals, "answers to each symbol")


@dataclass(frozen=True, kw_only=True)
class Treecall:
    """Associative Treecall: a string of a grammar, then one of its symbols; answer its parent in the tree."""

    terminals: Annotated[int, Field(ge=1, le=2**16, description="symbols that occur in documents, |Σ|")] = 20
    nonterminals: Annotated[int, Field(ge=1, le=2**12, description="nonterminals of the grammar, |N|")] = 40
    max_depth: Annotated[int, Field(ge=1, le=100, description="deepest nesting of productions, d_max")] = 10
    max_rhs: Annotated[int, Field(ge=2, le=64, description="symbols on a right-hand side with the head, L_max")] = 5
    max_rules: Annotated[int, Field(ge=1, le=64, description="most productions of a nonterminal, R_max")] = 5
    terminal_weight: Annotated[float, Field(gt=0, le=1e6, description="of all terminals; a nonterminal: 1, r_Σ")] = 20.0
    head: Annotated[Head, Field(description="side of a production on which the parent stands, H")] = "right"
    grammar_seed: Annotated[int, Field(ge=0, le=2**32 - 1, description="which grammar of this kind")] = 0
    max_len: Annotated[int, Field(ge=MIN_LEN, le=2**15 - 1, description="longest document in tokens")] = 1024
    query: Annotated[Query, Field(description="relation of the answer to the symbol asked about")] = "parent"
    held_out: Annotated[float, Field(ge=0, lt=1, description="share of (query, answer) types asked only in test")] = 0.0

    constraints: ClassVar[tuple[Callable[..., str | None], ...]] = (_heads_fit, _rules_fit, _types_divide)

    def __post_init__(self) -> None:
        settle(self)
        self._refuse_the_impossible()

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
        stream, types = np.uint64(key_of(self.key, seed, split)), self.types.for_kernel(split)
        flat, parents, lengths, key, value, failed = draw_treecall(
            stream, index, self.grammar.for_kernel, QUERIES.index(self.query), types, self.max_symbols, MAX_ATTEMPTS
        )
        if failed >= 0:
            raise InvalidInput(f"treecall: grammar_seed={self.grammar_seed}: {MAX_ATTEMPTS} draws were no documents")
        query = lengths - 1
        answers = flat[np.cumsum(lengths) - lengths + value]
        return Documents(index, flat, lengths, roles_of(key, value, query), query[:, None], answers[:, None], parents)

    def corrupt(self, docs: Documents, role: Role, seed: Seed, kind: Kind = "resample") -> Corrupted:
        return corrupt(self, docs, role, seed, kind)

    def symbols(self, role: Role) -> range:
        return range(FIRST_SYMBOL, self.vocab_size)

    def partners(self, docs: Documents, role: Role) -> Bool[ndarray, "n time"]:
        """For a value, any symbol; otherwise the nodes whose own answer is another one."""
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
        return np.where(target >= 0, docs.tokens[rows, target], NO_ANSWER).astype(np.int32)[:, None]

    def word(self, token: int) -> str:
        return f"t{token - FIRST_SYMBOL}" if token >= FIRST_SYMBOL else SPECIALS[token]

    def _related(self, docs: Documents) -> Int32[ndarray, "n time"]:
        """For each position the one its answer stands at, −1 for none."""
        assert docs.parents is not None
        parents = docs.parents.astype(np.int32)
        if self.query == "parent":
            return parents
        if self.query == "grandparent":
            return np.where(parents >= 0, np.take_along_axis(parents, np.maximum(parents, 0), axis=1), -1)
        rightmost_child = np.full_like(parents, -1)
        rows, children = np.nonzero(parents >= 0)
        np.maximum.at(rightmost_child, (rows, parents[rows, children]), children.astype(np.int32))
        if self.query == "child":
            return rightmost_child
        return np.where(parents >= 0, np.take_along_axis(rightmost_child, np.maximum(parents, 0), axis=1), -1)

    def _refuse_the_impossible(self) -> None:
        shortest, longest = self.grammar.lengths
        if longest < MIN_SYMBOLS:
            raise InvalidInput(
                f"grammar_seed={self.grammar_seed} must give strings of {MIN_SYMBOLS} symbols or more, and the longest "
                f"has {longest}: take another seed, or raise max_rhs={self.max_rhs} or max_rules={self.max_rules}"
            )
        if shortest > self.max_symbols:
            raise InvalidInput(
                f"max_len={self.max_len} must be at least {shortest + AROUND}, the shortest document of this grammar"
            )
        for split in SPLITS[::2] if self.held_out else SPLITS[:1]:  # dev asks what train asks
            key, drawn, usable, words = key_of(self.key, "probe", split), 0, 0, 0
            while usable < WANTED:
                if drawn == PROBES or words > PROBED_WORDS:
                    raise InvalidInput(self._complaint(split, key, drawn, usable))
                rng = Stream(key, drawn)
                usable += self.reference(rng, split) is not None
                drawn, words = drawn + 1, words + rng.drawn

    def reference(self, rng: Choices, split: Split) -> Document | None:
        """One attempt at a document in plain Python."""
        return treecall_ref(rng, self.grammar, self.max_symbols, self.query, partial(self.types.asks, split))

    def _complaint(self, split: Split, key: int, drawn: int, usable: int) -> str:
        """Which field keeps most draws from being documents, as an error line."""
        strings = [derive_ref(Stream(key, i), self.grammar, self.max_symbols) for i in range(drawn)]
        of = f"{drawn} strings of this grammar (grammar_seed={self.grammar_seed})"
        long, short = strings.count(None), sum(string is not None and len(string) < MIN_SYMBOLS for string in strings)
        if drawn - long - short < WANTED and long > short:
            return f"max_len={self.max_len} must be larger: of {of} {long} have more than {self.max_symbols} symbols"
        if drawn - long - short < WANTED:
            return f"max_rhs={self.max_rhs} must be larger: of {of} {short} have fewer than {MIN_SYMBOLS} symbols"
        field = f"held_out={self.held_out}" if self.held_out else f"query={self.query}"
        return f"{field} must leave {split} something to ask: of {of} it can ask about {usable}"
