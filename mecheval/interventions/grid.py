"""A grid of interventions and its options, validated before torch is imported."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from mecheval.core.options import Field, validate
from mecheval.metrics.measurement import Measurement, Values
from mecheval.tasks.corruption import Kind, Role, check_kind
from mecheval.tasks.variables import VARIABLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from mecheval.interventions.verdict import Thresholds, Verdict

GridName = Literal["none", "short", "stream", "all"]
GridSplit = Literal["test", "dev", "both"]
Condition = Literal["restored", "ablated", "control"]
Metric = Literal["likelihood", "accuracy", "logit", "kl", "share", "counterfactual"]
Cell = tuple[Condition, str, str]  # condition, site, role
Count = Annotated[int, Field(ge=1, le=2**20)]
MEMORY = 2**28  # bytes of activations at a time


@dataclass(frozen=True)
class Grid:
    """The read-outs of every document: clean, corrupt and in every cell.

    They are NaN where a document has no such token. `layers` is the number of the model's blocks,
    `kinds` the mixers of each where they differ.

    Parameters
    ----------
    corrupted
        The role that was corrupted.
    split
        The split of the documents.
    clean
        Values of the clean run, an array for each metric.
    corrupt
        Values of the corrupt run.
    cells
        Values by condition, site and role.
    layers
        Number of the model's blocks.
    kinds
        The name of each block's mixer, if blocks differ.

    Examples
    --------
    >>> from mecheval import LanguageModel, ModelConfig, Recall, interchange
    >>> task = Recall(pairs=2, vocab=8)
    >>> model = LanguageModel(ModelConfig("attention", d_model=8), task.vocab_size)
    >>> grid = interchange(model, task, ["blocks.1.block_in"], ["key", "value"], documents=16)
    >>> grid.cells["restored", "blocks.1.block_in", "key"]["likelihood"].shape
    (16,)
    >>> [row.condition for row in grid.rows(metrics=["accuracy"])]
    ['clean', 'corrupt', 'restored', 'restored']
    >>> grid.to_frame(["likelihood"])[["condition", "role", "n"]].shape
    (4, 3)
    >>> figure = grid.plot("likelihood")  # a matplotlib figure
    """

    corrupted: str
    split: str
    clean: Values
    corrupt: Values
    cells: dict[Cell, Values]
    layers: int
    kinds: tuple[str, ...] = ()

    def rows(self, step: int = 0, metrics: Sequence[str] | None = None) -> list[Measurement]:
        """Return one row for each metric, condition, site and role, and the share of each cell."""
        from mecheval.interventions.restoration import rows

        return rows(self, step, metrics)

    def verdict(self, thresholds: "Thresholds | None" = None) -> "Verdict":
        """Return how the model recalls; InvalidInput if the grid lacks a cell that this needs."""
        from mecheval.interventions.verdict import Thresholds, verdict

        return verdict(self, thresholds=thresholds or Thresholds())

    def to_frame(self, metrics: Sequence[str] | None = None) -> "DataFrame":
        """Return the rows as a pandas DataFrame."""
        from mecheval.interventions.grid_display import grid_frame

        return grid_frame(self, metrics)

    def plot(self, metric: str | None = None, condition: Condition | None = None) -> "Figure":
        """Return a matplotlib heat map by site and role, with values and intervals in its cells.

        Without a `metric` it shows the share, or the likelihood if the corruption takes too little
        away for shares; without a `condition` the grid's first.
        """
        from mecheval.interventions.grid_display import grid_figure

        return grid_figure(self, metric, condition)

    def __repr__(self) -> str:
        from mecheval.interventions.grid_display import grid_text

        return grid_text(self)

    def _repr_html_(self) -> str:
        from mecheval.interventions.grid_display import grid_html

        return grid_html(self)


def layer_of(site: str) -> int | None:
    """Return the block that a site is in; None outside of blocks."""
    match = re.match(r"blocks\.([0-9]+)\.", site)
    return int(match[1]) if match else None


def layers_of(sites: Iterable[str]) -> int:
    """Count a model's blocks by the names of its sites."""
    return 1 + max((layer for site in sites if (layer := layer_of(site)) is not None), default=-1)


def _check_corrupt(corrupt: Role) -> str | None:
    if corrupt in ("bos", "divider", "next_key"):
        return f"corrupt={corrupt} must be one of {', '.join(VARIABLES)}, or a task's own variable"
    return None


def _check_metric(metric: Metric, kind: Kind) -> str | None:
    if metric == "counterfactual" and kind == "resample":
        return f"metric=counterfactual needs kind=swap, which has another right answer; kind={kind}"
    return None


def _check_condition(condition: Condition, document: int | None) -> str | None:
    if condition == "control" and document is not None:
        return f"condition=control needs several documents; document={document} is one"
    return None


def _check_role(role: list[str] | None, document: int | None) -> str | None:
    if role and document is not None:
        return f"role={role[0]} cannot go with document={document}, which shows all its positions"
    return None


@dataclass(frozen=True, kw_only=True)
class GridOptions:
    """The options of one grid.

    `site` is a grid's name or a list of sites; without it, the sites are those of the stream.
    `document` is the index of a single document, measured at all its positions. `memory` is in MB.
    """

    site: list[str] | GridName | None = None
    role: list[str] | None = None
    corrupt: Role = "key"
    kind: Kind = "resample"
    condition: Condition = "restored"
    metric: Metric = "likelihood"
    documents: Count = 320
    document: Annotated[int, Field(ge=0, lt=2**62)] | None = None
    memory: Count = MEMORY // 2**20

    constraints: ClassVar[tuple[Callable[..., str | None], ...]] = (
        check_kind,
        _check_corrupt,
        _check_metric,
        _check_condition,
        _check_role,
    )


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """The evaluation of a run: on dev during training, on test and by a grid at its end.

    Parameters
    ----------
    documents
        Documents of dev and of test.
    every
        Steps between evaluations.
    grid
        Sites of the grid: `short` (those of a verdict), `stream`, `all` or `none`.
    grid_documents
        Documents of the grid.
    grid_split
        Split of the last grid.
    grid_every
        Evaluations between grids on dev during training; 0 for none.

    Examples
    --------
    >>> from mecheval import EvalConfig
    >>> EvalConfig(documents=256).grid
    'short'
    """

    documents: Annotated[int, Field(ge=1, le=2**20, description="documents of dev and test")] = 1024
    every: Annotated[int, Field(ge=1, le=10**9, description="steps between evaluations")] = 500
    grid: Annotated[
        GridName, Field(description="sites: of a verdict, of the stream, all or none")
    ] = "short"
    grid_documents: Annotated[int, Field(ge=1, le=2**20, description="documents of the grid")] = 320
    grid_split: Annotated[GridSplit, Field(description="split of the last grid")] = "test"
    grid_every: Annotated[
        int, Field(ge=0, le=10**9, description="evaluations between grids on dev; 0: none")
    ] = 0

    def __post_init__(self) -> None:
        validate(type(self), vars(self))
