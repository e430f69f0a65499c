"""Induction in several hops: the token after the last earlier occurrence, k times.

BOS ⟨k⟩ s₁ s₂ … s_T → an answer at every letter

Follows `InductionHopsFullSequenceTask` of hop-induction-heads. There are no pairs and no divider:
every letter is key, value and query.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np
from jaxtyping import Bool, Int32
from numpy import ndarray

from mecheval.core.errors import InvalidInput
from mecheval.core.options import Field, settle
from mecheval.tasks.corruption import Role, Seed, corrupt
from mecheval.tasks.documents import BOS, FIRST_SYMBOL, SPECIALS, Documents, lay_out
from mecheval.tasks.lookup import one_first
from mecheval.tasks.philox import key_of
from mecheval.tasks.reference import Choices, PlainDocument
from mecheval.tasks.splits import Split
from mecheval.tasks.task import MAX_ATTEMPTS, numbers, spec_of

START = 2  # where the letters start


def _some_letter_returns(hops: int, length: int) -> str | None:
    """Reject settings for which no document can have an answer after the most hops."""
    if length < hops + 2:  # each hop ends before it started, and the first two places have none
        return f"length={length} must be at least {hops + 2} for hops={hops}"
    return None


@dataclass(frozen=True, kw_only=True)
class HopInduction:
    """Induction in several hops: the token after the last earlier occurrence, k times.

    Parameters
    ----------
    length
        Letters of a document; none follows itself.
    letters
        Different letters.
    hops
        Most hops; k is uniform from 1.

    Examples
    --------
    >>> from mecheval import build_task
    >>> task = build_task("hop_induction:length=12,hops=2")
    >>> docs = task.documents(0, "test", 0, 100)
    >>> bool((docs.at("value") == docs.answer).all())
    True
    """

    length: Annotated[int, Field(ge=3, le=2**10, description="letters of a document")] = 100
    letters: Annotated[int, Field(ge=2, le=2**10, description="different letters")] = 4
    hops: Annotated[int, Field(ge=1, le=64, description="most hops")] = 16

    constraints: ClassVar = (_some_letter_returns,)
    variables: ClassVar[tuple[Role, ...]] = ("key", "value", "query", "hop", "last_key", "count")

    def __post_init__(self) -> None:
        settle(self)
        self._reject_rare_answers()

    @cached_property
    def key(self) -> str:
        return spec_of("hop_induction", self).key

    @property
    def vocab_size(self) -> int:
        return FIRST_SYMBOL + self.letters + self.hops + 1

    @property
    def max_len(self) -> int:
        return START + self.length

    @property
    def none(self) -> int:
        """The answer where a letter on the way has not occurred before."""
        return self.vocab_size - 1

    def documents(self, seed: Seed, split: Split, start: int, stop: int) -> Documents:
        from mecheval.tasks.kernels.hop_induction import draw_hop_induction

        index = numbers(seed, split, start, stop)
        tokens = np.empty((len(index), self.max_len), np.int32)
        found = np.empty((len(index), self.length), np.int32)
        places = np.empty((len(index), 3), np.int32)
        stream = np.uint64(key_of(self.key, seed, split))
        shape = (self.letters, self.hops, MAX_ATTEMPTS)
        if draw_hop_induction(stream, index, *shape, tokens, found, places) >= 0:
            raise self._too_short()
        query, key, last_key = (START + places).T
        roles = {"bos": np.zeros_like(query), "count": np.ones_like(query), "query": query}
        roles |= {"key": key, "hop": key + 1, "last_key": last_key, "value": last_key + 1}
        order = one_first(places[:, 0], self.length)
        ends = np.minimum(found, self.length - 1)
        letters = np.take_along_axis(tokens, START + ends, axis=1)
        answers = np.where(found == self.length, self.none, letters).astype(np.int32)
        answers = np.take_along_axis(answers, order, axis=1)
        return lay_out(index, tokens, roles, START + order, answers)

    def reference(self, rng: Choices, split: Split) -> PlainDocument | None:
        """Attempt one document in plain Python; None if no letter has an answer."""
        return hop_induction_ref(rng, self.length, self.letters, self.hops)

    corrupt = corrupt

    def symbols(self, role: Role) -> range:
        counts = FIRST_SYMBOL + self.letters
        return range(counts, self.none) if role == "count" else range(FIRST_SYMBOL, counts)

    def partners(self, docs: Documents, role: Role) -> Bool[ndarray, "n time"]:
        """Mark every letter; there is only one count."""
        symbols = self.symbols("key")
        letters = (docs.tokens >= symbols.start) & (docs.tokens < symbols.stop)
        return letters & (role != "count")

    def answers(self, docs: Documents) -> Int32[ndarray, "n queries"]:
        rows, letters = np.arange(len(docs)), docs.tokens[:, START:] - FIRST_SYMBOL
        latest = np.full((len(docs), self.letters), -1)
        after = np.full((len(docs), self.length + 1), -1)  # from nowhere, −1, to nowhere
        for i in range(self.length):
            before = latest[rows, letters[:, i]]
            after[:, i] = np.where(before >= 0, before + 1, -1)
            latest[rows, letters[:, i]] = i
        counts = docs.tokens[:, 1] - self.symbols("count").start + 1
        place = docs.queries - START
        for hop in range(self.hops):
            moved = np.take_along_axis(after, place % (self.length + 1), axis=1)
            place = np.where((hop < counts)[:, None], moved, place)
        answers = np.take_along_axis(docs.tokens, START + np.maximum(place, 0), axis=1)
        return np.where(place >= 0, answers, self.none).astype(np.int32)

    def word(self, token: int) -> str:
        number = token - FIRST_SYMBOL
        if number < 0:
            return SPECIALS[token]
        if token == self.none:
            return "none"
        return f"s{number}" if number < self.letters else f"hop{number - self.letters + 1}"

    def _reject_rare_answers(self) -> None:
        from mecheval.tasks.probe import acceptance

        if acceptance(self) < 1 / 100:
            raise self._too_short()

    def _too_short(self) -> InvalidInput:
        problem = f"in too few documents of length={self.length} a letter has an answer"
        advice = "use fewer hops or letters, or a longer length"
        return InvalidInput(f"{problem} for hops={self.hops}, letters={self.letters}; {advice}")


def hop_induction_ref(rng: Choices, length: int, letters: int, hops: int) -> PlainDocument | None:
    """Draw BOS, a count and letters, none twice in a row; None if no letter has an answer."""
    count = 1 + rng.below(hops)
    drawn = [rng.below(letters)]
    while len(drawn) < length:
        drawn.append((drawn[-1] + 1 + rng.below(letters - 1)) % letters)

    latest: dict[int, int] = {}
    after = []
    for place, letter in enumerate(drawn):
        after.append(latest.get(letter, -2) + 1)
        latest[letter] = place

    paths = []
    for place in range(length):
        path = [place]
        while len(path) <= count and path[-1] >= 0:
            path.append(after[path[-1]])
        paths.append(path)
    answered = [place for place in range(length) if paths[place][-1] >= 0]
    if not answered:
        return None
    query = answered[rng.below(len(answered))]

    none = FIRST_SYMBOL + letters + hops
    ends = [path[-1] for path in paths]
    order = [query, *(place for place in range(length) if place != query)]
    answers = [FIRST_SYMBOL + drawn[ends[i]] if ends[i] >= 0 else none for i in order]
    first, last = START + paths[query][1], START + paths[query][-1]
    roles = {"query": START + query, "key": first - 1, "hop": first, "last_key": last - 1}
    roles |= {"value": last, "count": 1}
    tokens = [BOS, FIRST_SYMBOL + letters + count - 1, *(FIRST_SYMBOL + s for s in drawn)]
    return PlainDocument(tokens, roles, [START + i for i in order], answers)
