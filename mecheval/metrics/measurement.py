"""One measured number: a row with columns."""

from dataclasses import asdict, dataclass
from typing import Any

from jaxtyping import Float64
from numpy import ndarray

METRICS = ("likelihood", "accuracy", "logit", "kl")
Values = dict[str, Float64[ndarray, " n"]]  # by metric, a number for each document


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The mean of `metric` over `n` documents with its 95 % interval, in one condition.

    In a grid it belongs to a site and a role; `corrupted` is the role that was corrupted.
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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
