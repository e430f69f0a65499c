"""The emergence of a mechanism: the steps at which shares cross one half during training."""

from collections.abc import Iterable, Mapping
from typing import Any

HALF = 0.5  # of what the corruption took away


def crossings(rows: Iterable[Mapping[str, Any]], half: float = HALF) -> dict[str, dict[str, int]]:
    """Return, by site and role, the first step whose grid on dev has a share of at least one half.

    A single grid tells nothing about when, so it gives no steps. A share exists only once clean and
    corrupt differ: nothing crosses before the model begins to solve the task.
    """
    grids = [row for row in rows if row["split"] == "dev" and row["condition"] == "restored"]
    first: dict[str, dict[str, int]] = {}
    if len({row["step"] for row in grids}) < 2:
        return first
    for row in sorted(grids, key=lambda row: int(row["step"])):
        if row["metric"] == "share" and row["value"] >= half:
            first.setdefault(row["site"], {}).setdefault(row["role"], row["step"])
    return first
