"""Positions in documents: a role, a role with an offset (`value+1`), or an index (`@5`)."""

import re

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray

from mecheval.core.errors import InvalidInput
from mecheval.core.options import did_you_mean
from mecheval.tasks.documents import Documents

Places = tuple[Int64[ndarray, " n"], Bool[ndarray, " n"]]  # position, and which have it
_PLACE = re.compile(r"(?:@([0-9]{1,18})|([a-z_]+)([+-][0-9]{1,18})?)")  # numbers of 64 bits


def positions(docs: Documents, place: str) -> Places:
    """Return the position of a place in each document, and which documents are long enough."""
    match = _PLACE.fullmatch(place)
    if not match or (match[2] and match[2] not in docs.roles):
        hint = did_you_mean(match[2] if match and match[2] else place, docs.roles)
        allowed = "a role, a role with an offset as in 'value+1', or '@5'"
        raise InvalidInput(f"role={place!r} must be {allowed}{hint}")
    start = docs.roles[match[2]].astype(np.int64) if match[2] else np.zeros(len(docs), np.int64)
    where = start + int(match[1] or match[3] or 0)
    inside = (where >= 0) & (where < docs.lengths)
    return np.where(inside, where, 0), inside


def every_position(docs: Documents) -> list[str]:
    """Return `@0`, `@1`, … up to the end of the longest document.

    Parameters
    ----------
    docs
        The documents.

    Returns
    -------
    list of str
        Places for `interchange`.

    Examples
    --------
    >>> from mecheval import Recall, every_position
    >>> every_position(Recall(pairs=1, vocab=4).documents(0, "test", 0, 3))
    ['@0', '@1', '@2', '@3', '@4']
    """
    return [f"@{position}" for position in range(docs.lengths.max(initial=0))]
