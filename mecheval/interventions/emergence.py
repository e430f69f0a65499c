"""When a mechanism came about: the grids made during training, read in order of their steps."""

from collections.abc import Iterable, Mapping
from typing import Any

HALF = 0.5  # of what the corruption took away


def crossings(rows: Iterable[Mapping[str, Any]], half: float = HALF) -> dict[str, dict[str, int]]:
    """By site and role the first step whose grid on dev gives a share of at least one half; nothing where none does, or
    where only one grid was made, which says nothing about when.

    A share exists only once clean and corrupt differ, so nothing crosses before the task begins to be solved.
    """
    found: dict[str, dict[str, int]] = {}
    grids = [row for row in rows if row["split"] == "dev" and row["condition"] == "restored"]
    if len({row["step"] for row in grids}) < 2:
        return found
    for row in sorted(grids, key=lambda row: int(row["step"])):
        if row["metric"] == "share" and row["value"] >= half:
            found.setdefault(row["site"], {}).setdefault(row["role"], row["step"])
    return found
