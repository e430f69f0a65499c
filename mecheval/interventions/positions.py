"""Where in a document: a role, a role and an offset (`value+1`), or a position (`@5`)."""

import re

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray

from mecheval.core.errors import InvalidInput
from mecheval.core.options import did_you_mean
from mecheval.tasks.documents import Documents

Places = tuple[Int64[ndarray, " n"], Bool[ndarray, " n"]]  # a position in each document, and which have it
_PLACE = re.compile(r"(?:@([0-9]{1,18})|([a-z_]+)([+-][0-9]{1,18})?)")  # numbers of 64 bits


def positions(docs: Documents, place: str) -> Places:
    """The place in each document, and which documents have it: an offset can lead out of one."""
    found = _PLACE.fullmatch(place)
    if not found or (found[2] and found[2] not in docs.roles):
        known = did_you_mean(found[2] if found and found[2] else place, docs.roles)
        raise InvalidInput(f"role={place!r} must be a role, a role with an offset as in 'value+1', or '@5'{known}")
    start = docs.roles[found[2]].astype(np.int64) if found[2] else np.zeros(len(docs), np.int64)
    where = start + int(found[1] or found[3] or 0)
    inside = (where >= 0) & (where < docs.lengths)
    return np.where(inside, where, 0), inside


def every_position(docs: Documents) -> list[str]:
    """The places `@0`, `@1`, … to the end of the longest document."""
    return [f"@{position}" for position in range(docs.lengths.max(initial=0))]
