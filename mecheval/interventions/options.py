"""What can be asked of an intervention, without torch: refused before anything heavy is loaded."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from mecheval.options import checked
from mecheval.tasks.corruption import Kind, Role

Condition = Literal["restored", "ablated", "control"]


@dataclass(frozen=True, kw_only=True)
class GridOptions:
    """Which documents are corrupted how, and what is put where."""

    corrupt: Role = "key"
    kind: Kind = "resample"
    condition: Condition = "restored"
    documents: Annotated[int, Field(ge=1, le=2**20)] = 320

    def __post_init__(self) -> None:
        checked(type(self), vars(self))
