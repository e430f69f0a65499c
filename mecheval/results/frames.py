"""The lines of many runs as one DataFrame, each line with the fields of its run.

A run's fields are turned into columns once and repeated, not once for each of its lines.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

Fields = Mapping[str, Any]


def joined(
    runs: Sequence[Fields], lines: Sequence[Sequence[Fields]], columns: Sequence[str] | None = None
) -> "DataFrame":
    """Return `run | line` for each line of each run; runs without lines leave no trace.

    Of a line only the `columns` are taken; without them, all that any line has.
    """
    import numpy as np
    from pandas import DataFrame, concat

    parts = [(run, own) for run, own in zip(runs, lines, strict=True) if own]
    names = dict.fromkeys(chain.from_iterable(_names(run, own, columns) for run, own in parts))
    measured = DataFrame([line for _, own in parts for line in own], columns=columns)
    fields = DataFrame([run for run, _ in parts])
    fields = fields.drop(columns=list(fields.columns.intersection(measured.columns)))
    numbers = np.repeat(np.arange(len(parts)), [len(own) for _, own in parts])
    repeated = fields.take(numbers).reset_index(drop=True)
    return concat([repeated, measured], axis=1)[list(names)]


def _names(run: Fields, lines: Sequence[Fields], columns: Sequence[str] | None) -> dict[str, None]:
    return dict.fromkeys(chain(run, columns) if columns else chain(run, *lines))
