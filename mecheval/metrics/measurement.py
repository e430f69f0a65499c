"""One measured number: a row with columns."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from mecheval.metrics.statistics import ANY, BOUNDS, interval

Values = dict[str, Float64[ndarray, " n"]]  # by metric, a number for each document


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The mean of `metric` over `n` documents with its 95 % interval, in one condition.

    In a grid it belongs to a site and a role; `corrupted` is the role that was corrupted.

    Examples
    --------
    >>> import numpy as np
    >>> from mecheval import Measurement
    >>> right = np.array([1.0, 1.0, 0.0, 1.0])
    >>> row = Measurement.of(right, metric="accuracy", split="test", step=100)
    >>> row.value, row.n, row.low < row.value < row.high
    (0.75, 4, True)
    """

    metric: str
    condition: str = "clean"
    value: float
    n: int
    low: float
    high: float
    split: str
    step: int
    corrupted: str | None = None
    site: str | None = None
    layer: int | None = None
    role: str | None = None

    @classmethod
    def of(cls, x: Float64[ndarray, " n"], **columns: Any) -> "Measurement":
        """Return the mean of a number for each document; NaN without documents."""
        mean, (low, high) = np.nan, (np.nan, np.nan)
        if len(x):
            bounds = BOUNDS.get(columns["metric"], ANY)
            mean, (low, high) = float(x.mean()), interval(x, bounds)
        return cls(value=mean, n=len(x), low=low, high=high, **columns)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
