"""What can be asked of an intervention, without torch: refused before anything heavy is loaded."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from mecheval.tasks.corruption import Kind, Role

Condition = Literal["restored", "ablated", "control"]
Metric = Literal["likelihood", "accuracy", "logit", "kl", "share", "counterfactual"]
MEMORY = 2**28  # bytes of activations at a time


def _has_counterfactual(metric: Metric, kind: Kind) -> str | None:
    if metric == "counterfactual" and kind != "swap":
        return f"metric=counterfactual must go with kind=swap, after which another answer is right; kind={kind}"
    return None


def _has_another(condition: Condition, document: int | None) -> str | None:
    if condition == "control" and document is not None:
        return f"condition=control must have several documents to take from; document={document} is one"
    return None


def _has_all_positions(role: list[str] | None, document: int | None) -> str | None:
    if role and document is not None:
        return f"role={role[0]} must be left out with document={document}: all its positions are shown"
    return None


@dataclass(frozen=True, kw_only=True)
class GridOptions:
    """Which documents are corrupted how, what is put where, and which number is shown.

    `documents` counts those from the first on; `document` is the number of one, at all its positions; `memory` is MB.
    """

    role: list[str] | None = None
    corrupt: Role = "key"
    kind: Kind = "resample"
    condition: Condition = "restored"
    metric: Metric = "likelihood"
    documents: Annotated[int, Field(ge=1, le=2**20)] = 320
    document: Annotated[int, Field(ge=0, lt=2**62)] | None = None
    memory: Annotated[int, Field(ge=1, le=2**20)] = MEMORY // 2**20

    constraints: ClassVar[tuple[Callable[..., str | None], ...]] = (
        _has_counterfactual,
        _has_another,
        _has_all_positions,
    )
