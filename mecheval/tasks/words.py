"""A task in the tokens of a language model: its symbols become words, its documents text.

    symbols   <bos> k3 v1 k0 v2 <div> k3            drawn and corrupted by the inner task
    text      ` river silver . apple green . river` each symbol a word that is one token
    tokens    what the model's tokenizer makes of the text, with the roles of the symbols

Every document is compared with what the tokenizer makes of its text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, Int32, Int64
from numpy import ndarray

from mecheval.core.errors import InvalidInput
from mecheval.core.spec import canonical_json, digest
from mecheval.tasks.corruption import Kind, Role, Seed, corrupt_by_kind
from mecheval.tasks.documents import DIVIDER as DIVIDER_ID
from mecheval.tasks.documents import FIRST_SYMBOL, NO_ANSWER, Corrupted, Documents
from mecheval.tasks.philox import below, key_of
from mecheval.tasks.rendering import (
    DIVIDER,
    FED,
    KEY,
    QUERY,
    SPECIAL,
    SYMBOL,
    VALUE,
    Layout,
    Lexicon,
    Template,
    write,
)
from mecheval.tasks.splits import Split
from mecheval.tasks.task import Task
from mecheval.tasks.variables import variables_of

SHOWN = {"\n": "⏎", " ": "␣", "": "␣"}


@dataclass(frozen=True, repr=False)
class WordDocuments(Documents):
    """Documents in words, with those in symbols that they were written from."""

    symbols: Documents = field(kw_only=True)

    def __getitem__(self, rows: slice | Int[ndarray, " m"] | Bool[ndarray, " n"]) -> Documents:
        return _with_symbols(super().__getitem__(rows), self.symbols[rows])

    def with_tokens(self, tokens: Int32[ndarray, "n time"]) -> Documents:
        """Return documents with other tokens, which have no symbols any more."""
        plain = {f.name: getattr(self, f.name) for f in fields(Documents)}
        return Documents(**plain).with_tokens(tokens)


@dataclass(frozen=True)
class Words:
    """A task whose symbols are words and whose documents are text, in a tokenizer's tokens.

    `in_words` builds one. Roles are those of the inner task: `value` is the token of its word,
    `next_key` the first token after the pair, `query` the token at which the answer is read, and
    `query_key` the word that is asked about. Corruptions are the inner task's, written again.

    Parameters
    ----------
    inner
        The task that draws and corrupts symbols.
    lexicon
        Encodes and decodes text.
    template
        How pairs are written.
    words
        The word of each symbol.
    word_tokens
        The token of each word.
    shots
        Pairs that are asked and answered before the query.
    """

    inner: Task
    lexicon: Lexicon
    template: Template
    words: tuple[str, ...]
    word_tokens: tuple[int, ...]
    shots: int = 0

    corrupts_any_kind = True  # kinds of third parties change symbols, too

    @property
    def variables(self) -> tuple[Role, ...]:
        return variables_of(self.inner)

    @cached_property
    def key(self) -> str:
        inner = getattr(self.inner, "key", None) or repr(self.inner)
        written = [self.template.pair, self.template.divider, self.shots, list(self.words)]
        return digest(canonical_json([inner, self.lexicon.name, *written]))

    @property
    def vocab_size(self) -> int:
        return self.lexicon.vocab_size

    @cached_property
    def max_len(self) -> int:
        """The most tokens of a document: exact if all documents are of one length."""
        docs = self.documents(0, "test", 0, 1)
        if docs.symbols.lengths[0] == self.inner.max_len:
            return int(docs.lengths[0])
        widest = len(self.lexicon.encode(" ".join([*self.template.parts, self.template.divider])))
        return len(self.lexicon.bos) + (self.inner.max_len + 2 * self.shots) * (widest + 2)

    def documents(self, seed: Seed, split: Split, start: int, stop: int) -> WordDocuments:
        return self.write(self.inner.documents(seed, split, start, stop))

    def corrupt(
        self, docs: Documents, role: Role, seed: Seed = 0, kind: Kind = "resample"
    ) -> Corrupted:
        if not isinstance(docs, WordDocuments):
            raise InvalidInput("documents in words are needed; draw them with documents()")
        twins = corrupt_by_kind(self.inner, docs.symbols, role, seed, kind)
        return Corrupted(self.write(twins.documents, clean=docs.symbols), twins.usable)

    def symbols(self, role: Role) -> tuple[int, ...]:
        """Return the tokens that a role can have."""
        inner: Any = self.inner
        return tuple(self.word_tokens[symbol - FIRST_SYMBOL] for symbol in inner.symbols(role))

    def word(self, token: int) -> str:
        text = self.lexicon.decode([token])
        return SHOWN.get(text, text.strip(" ").replace("\n", "⏎"))

    def text(self, docs: Documents, row: int) -> str:
        """Return the text of one document, without what stands before it."""
        tokens = docs.tokens[row, len(self.lexicon.bos) : docs.lengths[row]]
        return self.lexicon.decode(tokens.tolist())

    def write(self, symbols: Documents, clean: Documents | None = None) -> WordDocuments:
        """Write documents of symbols as documents of words; twins show the shots of the clean."""
        kinds = kinds_of(self.inner, symbols)
        layouts = [self._layout(kind) for kind in kinds]
        shown = symbols if clean is None else clean
        shots = _choose_shots(shown, kinds_of(self.inner, shown), self.shots)
        rows = []
        for layout, tokens, places in zip(layouts, symbols.tokens, shots, strict=True):
            rows.append(self._write_row(layout, tokens, places))
        known = symbols.answers != NO_ANSWER
        numbers = np.where(known, symbols.answers - FIRST_SYMBOL, 0)
        docs = Documents(
            index=symbols.index,
            flat=np.concatenate(rows) if rows else np.empty(0, np.int32),
            lengths=np.array([len(row) for row in rows], np.int32),
            roles=_roles(symbols, layouts),
            queries=_places(layouts, symbols.queries),
            answers=np.where(known, self._tokens[numbers], np.int32(NO_ANSWER)),
        )
        return _with_symbols(docs, symbols)

    def _layout(self, kinds: str) -> Layout:
        """Return the layout of documents of these kinds of places."""
        if kinds not in self._layouts:
            script = write(self.template, kinds, self.shots)
            first = self.words[0], self.word_tokens[0]
            self._layouts[kinds] = Layout.of(self.lexicon, script, kinds, *first)
        return self._layouts[kinds]

    def _write_row(
        self, layout: Layout, symbols: Int32[ndarray, " places"], shots: Int64[ndarray, " shots"]
    ) -> Int32[ndarray, " tokens"]:
        """Put the words of a document into its layout; compare with the tokens of its text."""
        sources = layout.sources.copy()
        sources[sources < 0] = shots[-1 - sources[sources < 0]]
        number = symbols[sources] - FIRST_SYMBOL
        tokens = layout.skeleton.copy()
        tokens[layout.slots] = self._tokens[number]
        places = zip(layout.sources.tolist(), number.tolist(), strict=True)
        text = layout.script.text({place: self.words[n] for place, n in places})
        if self.lexicon.encode(text) != tokens[len(self.lexicon.bos) :].tolist():
            problem = "is read as other tokens than its words are alone"
            raise InvalidInput(f"{text[:60]!r} {problem}; choose other words or another template")
        return tokens

    @cached_property
    def _layouts(self) -> dict[str, Layout]:
        return {}

    @cached_property
    def _tokens(self) -> Int32[ndarray, " words"]:
        return np.array(self.word_tokens, np.int32)


def kinds_of(task: Task, docs: Documents) -> list[str]:
    """Return a text for each document that has the kind of each place.

    Keys and values are told apart where a task draws them from different symbols.
    """
    tokens = docs.tokens
    kinds = np.full(tokens.shape, SYMBOL)
    symbols = getattr(task, "symbols", None)
    if callable(symbols):
        keys, values = symbols("key"), symbols("value")
        if not {*keys} & {*values}:
            kinds[np.isin(tokens, values)] = VALUE
            kinds[np.isin(tokens, keys)] = KEY
    kinds[tokens < FIRST_SYMBOL] = SPECIAL
    kinds[tokens == DIVIDER_ID] = DIVIDER
    at = docs.queries.astype(np.int64)
    asked = np.where(np.take_along_axis(kinds, at, axis=1) == VALUE, FED, QUERY)
    np.put_along_axis(kinds, at, asked, axis=1)
    rows = zip(kinds.tolist(), docs.lengths.tolist(), strict=True)
    return ["".join(row[:length]) for row, length in rows]


def _with_symbols(docs: Documents, symbols: Documents) -> WordDocuments:
    values = {f.name: getattr(docs, f.name) for f in fields(Documents)}
    return WordDocuments(**values, symbols=symbols)


def _places(
    layouts: Sequence[Layout], at: Int32[ndarray, "n places"]
) -> Int32[ndarray, "n places"]:
    """Return the tokens of places among symbols, document by document."""
    rows = [layout.place[row] for layout, row in zip(layouts, at, strict=True)]
    return np.array(rows, np.int32).reshape(at.shape)


def _roles(symbols: Documents, layouts: Sequence[Layout]) -> dict[str, Int32[ndarray, " n"]]:
    roles = {role: _places(layouts, at[:, None])[:, 0] for role, at in symbols.roles.items()}
    if "next_key" in roles:
        before = symbols.roles["next_key"][:, None] - np.int32(1)
        roles["next_key"] = _places(layouts, before)[:, 0] + np.int32(1)
    asked = zip(layouts, symbols.queries[:, 0].tolist(), strict=True)
    own = [layout.slots[layout.sources == place][0] for layout, place in asked]
    return {**roles, "query_key": np.array(own, np.int32)}


def _choose_shots(docs: Documents, kinds: Sequence[str], shots: int) -> Int64[ndarray, "n shots"]:
    """Draw the places of keys and values of different pairs, none of them the one asked about.

    A pair whose key has another value later is not drawn.
    """
    chosen = np.empty((len(docs), 2 * shots), np.int64)
    if not shots:
        return chosen
    if any(KEY + KEY in kind or VALUE + VALUE in kind for kind in kinds):
        raise InvalidInput(f"shots={shots} needs pairs of one key and one value")
    is_key = np.zeros(docs.tokens.shape, bool)
    for i, kind in enumerate(kinds):
        is_key[i, : len(kind)] = [place == KEY for place in kind]
    free = is_key & (docs.tokens != docs.at("key")[:, None]) & _are_right(docs, is_key)
    for shot in range(shots):
        counts = free.sum(axis=1)
        if not counts.all():
            raise InvalidInput(f"shots={shots} must be below the pairs of every document")
        nth = below(key_of("shots", shot), docs.index, counts)
        place = (np.cumsum(free, axis=1) <= nth[:, None]).sum(axis=1)
        chosen[:, 2 * shot], chosen[:, 2 * shot + 1] = place, place + 1
        free &= docs.tokens != docs.tokens[np.arange(len(docs)), place][:, None]
    return chosen


def _are_right(docs: Documents, is_key: Bool[ndarray, "n time"]) -> Bool[ndarray, "n time"]:
    """Mark the keys whose value is that of their last reading."""
    right = is_key.copy()
    for row, tokens in enumerate(docs.tokens):
        places = np.flatnonzero(is_key[row])
        last = dict(zip(tokens[places].tolist(), tokens[places + 1].tolist(), strict=True))
        right[row, places] = [last[int(tokens[i])] == tokens[i + 1] for i in places]
    return right
