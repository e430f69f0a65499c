"""What a run measures and how often, without torch: validated before anything heavy is imported."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from mecheval.core.options import validate

GridName = Literal["none", "short", "stream", "all"]
GridSplit = Literal["test", "dev", "both"]


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """What is measured: on dev during training, on test at its end, where the interventions are, too."""

    documents: Annotated[int, Field(ge=1, le=2**20, description="documents of dev and of test")] = 1024
    every: Annotated[int, Field(ge=1, le=10**9, description="steps between evaluations on dev")] = 500
    grid: Annotated[
        GridName,
        Field(description="sites of the interventions: what a verdict needs, the stream's, all or none"),
    ] = "short"
    grid_documents: Annotated[int, Field(ge=1, le=2**20, description="documents for the interventions")] = 320
    grid_split: Annotated[GridSplit, Field(description="whose documents these are at the end of training")] = "test"
    grid_every: Annotated[
        int, Field(ge=0, le=10**9, description="evaluations between two grids during training, on dev; 0: none")
    ] = 0

    def __post_init__(self) -> None:
        validate(type(self), vars(self))
