"""Finite groups as multiplication tables; element 0 is the identity."""

from functools import cache
from itertools import permutations
from typing import Literal

import numpy as np
from jaxtyping import Int32
from numpy import ndarray

Group = Literal["Z60", "A5", "S5", "S3"]
ORDERS = {"Z60": 60, "A5": 60, "S5": 120, "S3": 6}


@cache
def multiplication_table(group: Group) -> Int32[ndarray, "n n"]:
    """Return the table of products: row times column, the row's permutation applied first."""
    if group == "Z60":
        return np.add.outer(np.arange(60), np.arange(60)).astype(np.int32) % 60
    points = int(group[1])
    members = [p for p in permutations(range(points)) if group[0] == "S" or _is_even(p)]
    number = {member: i for i, member in enumerate(members)}
    table = [[number[tuple(q[x] for x in p)] for q in members] for p in members]
    return np.array(table, np.int32)


def _is_even(permutation: tuple[int, ...]) -> bool:
    pairs = [(a, b) for i, b in enumerate(permutation) for a in permutation[:i]]
    return sum(a > b for a, b in pairs) % 2 == 0
