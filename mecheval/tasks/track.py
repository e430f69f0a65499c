"""State tracking: the running product of elements of a group, asked at every step.

BOS g₁ g₂ … g_T → g₁, g₁g₂, …, g₁g₂…g_T

Follows the word problem of jopetty/word-problem. Nothing is looked up: the state is the mechanism.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np
from jaxtyping import Bool, Int32
from numpy import ndarray

from mecheval.core.options import Field, settle
from mecheval.tasks.corruption import Role, Seed, corrupt
from mecheval.tasks.documents import BOS, FIRST_SYMBOL, SPECIALS, Documents, lay_out
from mecheval.tasks.groups import ORDERS, Group, multiplication_table
from mecheval.tasks.philox import key_of
from mecheval.tasks.reference import Choices, PlainDocument
from mecheval.tasks.splits import Split
from mecheval.tasks.task import numbers, spec_of


@dataclass(frozen=True, kw_only=True)
class Track:
    """State tracking: elements of a group; answer their product so far, at every step.

    Parameters
    ----------
    group
        `Z60`, `A5`, `S5` or `S3`.
    length
        Elements of a document.

    Examples
    --------
    >>> from mecheval import build_task
    >>> task = build_task("track:group=Z60,length=4")
    >>> docs = task.documents(0, "test", 0, 100)
    >>> total = (docs.tokens[:, 1:] - 3).sum(axis=1) % 60
    >>> bool((docs.answer - 3 == total).all())
    True
    """

    group: Annotated[Group, Field(description="whose elements are multiplied")] = "A5"
    length: Annotated[int, Field(ge=2, le=2**13, description="elements of a document")] = 128

    variables: ClassVar[tuple[Role, ...]] = ("element", "query")

    def __post_init__(self) -> None:
        settle(self)

    @cached_property
    def key(self) -> str:
        return spec_of("track", self).key

    @property
    def vocab_size(self) -> int:
        return FIRST_SYMBOL + ORDERS[self.group]

    @property
    def max_len(self) -> int:
        return 1 + self.length

    def documents(self, seed: Seed, split: Split, start: int, stop: int) -> Documents:
        from mecheval.tasks.kernels.track import draw_track

        index = numbers(seed, split, start, stop)
        tokens = np.empty((len(index), self.max_len), np.int32)
        products = np.empty((len(index), self.length), np.int32)
        element = np.empty(len(index), np.int32)
        table = multiplication_table(self.group)
        draw_track(
            np.uint64(key_of(self.key, seed, split)), index, table, tokens, products, element
        )
        # the last step, which depends on all of them, comes first
        steps = np.roll(np.arange(1, self.max_len, dtype=np.int32), 1)
        queries = np.tile(steps, (len(index), 1))
        roles = {"bos": np.zeros_like(element), "element": element, "next_element": element + 1}
        roles["query"] = queries[:, 0]
        return lay_out(index, tokens, roles, queries, np.roll(products, 1, axis=1))

    def reference(self, rng: Choices, split: Split) -> PlainDocument:
        """Draw one document in plain Python."""
        return track_ref(rng, multiplication_table(self.group).tolist(), self.length)

    corrupt = corrupt

    def symbols(self, role: Role) -> range:
        return range(FIRST_SYMBOL, self.vocab_size)

    def partners(self, docs: Documents, role: Role) -> Bool[ndarray, "n time"]:
        """Mark every element."""
        return docs.tokens >= FIRST_SYMBOL

    def answers(self, docs: Documents) -> Int32[ndarray, "n queries"]:
        table = multiplication_table(self.group)
        products = np.zeros_like(docs.tokens)
        for i in range(1, docs.tokens.shape[1]):
            products[:, i] = table[products[:, i - 1], docs.tokens[:, i] - FIRST_SYMBOL]
        return FIRST_SYMBOL + np.take_along_axis(products, docs.queries, axis=1)

    def word(self, token: int) -> str:
        return SPECIALS[token] if token < FIRST_SYMBOL else f"g{token - FIRST_SYMBOL}"


def track_ref(rng: Choices, table: list[list[int]], length: int) -> PlainDocument:
    """Draw BOS and elements, each equally likely, with the product after each."""
    elements = [rng.below(len(table)) for _ in range(length)]
    products, product = [], 0
    for element in elements:
        product = table[product][element]
        products.append(FIRST_SYMBOL + product)
    element = 1 + rng.below(length - 1)
    tokens = [BOS, *(FIRST_SYMBOL + element for element in elements)]
    roles = {"element": element, "next_element": element + 1, "query": length}
    steps = [length, *range(1, length)]
    return PlainDocument(tokens, roles, steps, [products[step - 1] for step in steps])
