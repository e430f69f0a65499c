"""Writes the symbols of a document as text, and finds the token of each symbol.

A layout is found by writing a document of one kind with the same word in every place and asking the
tokenizer: the word's token marks the slots, all other tokens are the skeleton. So no rule about
spaces, prefixes or merges is assumed; a word or a template that does not fit is seen.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int32, Int64
from numpy import ndarray

from mecheval.core.errors import InvalidInput

# kinds of places in a document of symbols; a value that is fed is asked what follows it
KEY, VALUE, SYMBOL, DIVIDER, QUERY, FED, SPECIAL = "kvsdqfb"
SLOT = -1  # in a skeleton
_PAIRS = re.compile(f"({KEY}+)({VALUE}+)")


@runtime_checkable
class Lexicon(Protocol):
    """A tokenizer, as far as a task needs it."""

    @property
    def name(self) -> str:
        """A text that tells it from another tokenizer."""
        ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def bos(self) -> tuple[int, ...]:
        """The tokens before every text."""
        ...

    @property
    def special(self) -> frozenset[int]:
        """The tokens that are no text."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without special ones."""
        ...

    def decode(self, tokens: Sequence[int]) -> str: ...


@dataclass(frozen=True)
class Template:
    """A way to write a pair and a query; without `{key}` and `{value}` words follow each other.

    The query is the text of a pair up to its value, which is the answer.
    """

    pair: str
    divider: str = ""

    @classmethod
    def of(cls, text: str) -> "Template":
        """Return a template by its name, or from a text with {key} and {value}."""
        if text in TEMPLATES:
            return TEMPLATES[text]
        names = re.findall(r"{(.*?)}", text)
        after = text.partition("{value}")[2]
        if names != ["key", "value"] or not after.strip(" ") or re.search(r"[{}]", after):
            known = ", ".join(TEMPLATES)
            rule = "must be {key}, then {value}, then at least a full stop, or one of"
            raise InvalidInput(f"template={text!r} {rule} {known}")
        return cls(text)

    @property
    def parts(self) -> tuple[str, str, str]:
        """The text before the key, between key and value, and after the value."""
        before, _, rest = self.pair.partition("{key}")
        between, _, after = rest.partition("{value}")
        return before, between, after


TEMPLATES = {
    "bare": Template(" {key} {value} ."),
    "rows": Template(" {key} {value}\n"),
    "lines": Template(" {key}: {value}\n"),
    "sentence": Template(" The friend of {key} is {value}."),
    "plain": Template("", " ?"),
}
Piece = str | int  # a text, or the place of a symbol; those of shots are negative


@dataclass
class Script:
    """A document as pieces of text and places of symbols.

    `ends` has the number of pieces up to the end of the divider and of each query, `space` what
    stands between the last query and its answer.
    """

    pieces: list[Piece] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    space: str = " "

    def text(self, words: dict[int, str], pieces: int | None = None) -> str:
        """Return the text with words by place."""
        part = self.pieces[:pieces]
        return "".join(piece if isinstance(piece, str) else words[piece] for piece in part)

    @property
    def places(self) -> list[int]:
        return [piece for piece in self.pieces if isinstance(piece, int)]


def write(template: Template, kinds: str, shots: int) -> Script:
    """Write a document of some kinds of places by a template."""
    script = Script()
    if not template.pair:
        _write_plain(script, template, kinds)
        return script
    if FED in kinds:
        raise InvalidInput("the template has no place for a value that is fed; use template=plain")
    before, between, after = template.parts
    script.space = between[len(between.rstrip(" ")) :]
    divider = kinds.index(DIVIDER) if DIVIDER in kinds else len(kinds.rstrip(QUERY))
    first = len(kinds) - len(kinds.lstrip(SPECIAL))
    pairs = list(_PAIRS.finditer(kinds, first, divider))
    if "".join(pair[0] for pair in pairs) != kinds[first:divider]:
        raise InvalidInput("the template needs pairs, each a key and its value; use template=plain")
    for pair in pairs:
        _write_pair(script, template.parts, list(range(*pair.span(1))), list(range(*pair.span(2))))
    script.pieces.append(template.divider)
    if DIVIDER in kinds:
        script.ends[divider] = len(script.pieces)
    for shot in range(shots):
        _write_pair(script, template.parts, [-2 * shot - 1], [-2 * shot - 2])
    asked: list[int] = []
    for place in range(divider + (DIVIDER in kinds), len(kinds)):
        asked.append(place)
        if kinds[place] == QUERY:
            script.pieces += [after] if QUERY in kinds[:place] else []
            script.pieces += [before, *_spaced(asked), between.rstrip(" ")]
            script.ends[place], asked = len(script.pieces), []
    return script


def _write_plain(script: Script, template: Template, kinds: str) -> None:
    for place, kind in enumerate(kinds):
        if kind == DIVIDER:
            script.pieces.append(template.divider)
        elif kind != SPECIAL:
            script.pieces += [" ", place]
        if kind in (DIVIDER, QUERY, FED):
            script.ends[place] = len(script.pieces)


def _write_pair(
    script: Script, parts: tuple[str, str, str], keys: list[int], values: list[int]
) -> None:
    before, between, after = parts
    script.pieces += [before, *_spaced(keys), between, *_spaced(values), after]


def _spaced(places: Iterable[int]) -> Iterator[Piece]:
    for i, place in enumerate(places):
        if i:
            yield " "
        yield place


@dataclass(frozen=True)
class Layout:
    """The tokens of all documents that are written alike.

    `skeleton` has the tokens with `SLOT` where symbols stand; `sources` names the symbol of each
    slot, and `place` is the token of each symbol; of a query it is where the answer is read.
    """

    script: Script
    skeleton: Int32[ndarray, " time"]
    slots: Int64[ndarray, " slots"]
    sources: Int64[ndarray, " slots"]
    place: Int32[ndarray, " symbols"]

    @classmethod
    def of(cls, lexicon: Lexicon, script: Script, kinds: str, word: str, token: int) -> "Layout":
        """Find the layout of a script by a word and its token."""
        words = dict.fromkeys(script.places, word)
        lead = len(lexicon.bos)
        tokens = np.array([*lexicon.bos, *lexicon.encode(script.text(words))], np.int32)
        inside = tokens == token
        inside[:lead] = False
        slots, sources = np.flatnonzero(inside), np.array(script.places, np.int64)
        if len(slots) != len(sources):
            raise _unreadable(script.text(words), f"{word!r} is read {len(slots)} times")
        place = np.zeros(len(kinds), np.int32)
        own = sources >= 0
        place[sources[own]] = slots[own]
        for symbol, pieces in script.ends.items():
            part = [*lexicon.bos, *lexicon.encode(script.text(words, pieces))]
            if part != tokens[: len(part)].tolist():
                raise _unreadable(script.text(words), "a token runs over the end of a query")
            place[symbol] = len(part) - 1
        answered = [*lexicon.bos, *lexicon.encode(script.text(words) + script.space + word)]
        if answered != [*tokens.tolist(), token]:
            raise _unreadable(script.text(words), "the answer is another token than the value")
        skeleton = np.where(inside, np.int32(SLOT), tokens)
        return cls(script, skeleton, slots, sources, place)


def _unreadable(text: str, reason: str) -> InvalidInput:
    return InvalidInput(f"the tokenizer cannot place words in {text[:60]!r}: {reason}")


def single_tokens(lexicon: Lexicon, script: Script, words: Iterable[str]) -> dict[str, int]:
    """Return the words that are one token in every place of a script, each with its token.

    The other tokens must be the same for all of them, and none of them another's token.
    """
    places, found = script.places, dict[str, tuple[int, tuple[int, ...]]]()
    for word in dict.fromkeys(words):
        tokens = lexicon.encode(script.text(dict.fromkeys(places, word)))
        for token, count in Counter(tokens).items():
            if count == len(places) and lexicon.decode([token]).strip() == word:
                rest = tuple(SLOT if other == token else other for other in tokens)
                found[word] = token, rest
    if not found:
        return {}
    usual = Counter(rest for _, rest in found.values()).most_common(1)[0][0]
    chosen = {word: token for word, (token, rest) in found.items() if rest == usual}
    taken = {*usual, *lexicon.special}
    return {word: token for word, token in chosen.items() if token not in taken}
