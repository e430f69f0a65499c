"""The evaluation of a model by a grid: during training, by `mecheval intervene` and on cards."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mecheval.interventions.grid import Grid, GridName, GridOptions, layers_of
from mecheval.interventions.interchange import (
    NoEffectiveCorruption,
    interchange,
    stream_sites,
)
from mecheval.interventions.positions import every_position
from mecheval.interventions.restoration import rows
from mecheval.interventions.verdict import Verdict, supports_verdict, verdict, verdict_sites
from mecheval.metrics.measurement import Measurement
from mecheval.models.build import Model
from mecheval.models.site import sites
from mecheval.tasks.corruption import Role, corrupt_by_kind
from mecheval.tasks.splits import Split
from mecheval.tasks.task import Task
from mecheval.tasks.variables import variables_of

NEARBY = 10  # documents before and after one that cannot be measured, searched for others


@dataclass(frozen=True)
class GridEvaluation:
    """A grid and its verdict; `reason` says why one of them is missing."""

    grid: Grid | None
    verdict: Verdict | None
    reason: str | None

    def rows(self, step: int) -> list[Measurement]:
        """Return the grid's rows, but for tokens that no document has."""
        return [row for row in rows(self.grid, step) if row.n] if self.grid else []


def evaluate_grid(
    model: Model,
    task: Task,
    options: GridOptions,
    *,
    seed: int = 0,
    split: Split = "test",
    progress: Callable[[int, int], None] | None = None,
) -> GridEvaluation:
    """Measure a grid and its verdict; none without sites or an effective corruption."""
    names = options.site if isinstance(options.site, list) else grid_sites(model, options.site)
    if not names:
        return GridEvaluation(None, None, "the model has no sites; interventions need at least one")
    start, documents = options.document, 1
    if start is None:
        start, documents = 0, options.documents
    try:
        grid = interchange(
            model,
            task,
            names,
            _roles(task, options, seed, split),
            corrupt=_corrupted(task, options),
            kind=options.kind,
            conditions=[options.condition],
            documents=documents,
            start=start,
            seed=seed,
            split=split,
            memory=options.memory * 2**20,
            progress=progress,
        )
    except NoEffectiveCorruption as error:
        single = options.document is not None
        reason = _name_others(task, options, seed, split) if single else str(error)
        return GridEvaluation(None, None, reason)
    if supports_verdict(grid):
        return GridEvaluation(grid, verdict(grid), None)
    return GridEvaluation(grid, None, missing_sites(model) if options.document is None else None)


def missing_sites(model: Model) -> str | None:
    """Say which sites a verdict on the model needs and does not have; None if it has all."""
    known = sites(model)
    layers = layers_of(known)
    if not layers:
        return "a verdict needs sites named blocks.1.block_in, …; the model has none"
    missing = [name for name in verdict_sites(layers) if name not in known]
    if not missing:
        return None
    return f"a verdict needs the sites {', '.join(missing)}; the model does not have them"


def grid_sites(model: Model, grid: GridName | None) -> list[str]:
    """Return the sites of a named grid; "short" is "stream" where a verdict's sites are missing."""
    known = sites(model)
    if grid == "none":
        return []
    if grid == "all":
        return [name for name, site in known.items() if not site.materialised]
    names = verdict_sites(layers_of(known))
    if grid != "short" or not known.keys() >= {*names}:
        names = stream_sites(model)
    return names if grid is None else names + [name for name in known if name.endswith("conv_out")]


def _roles(task: Task, options: GridOptions, seed: int, split: Split) -> Sequence[str]:
    """Return the roles that were asked for; every position of a single document, else all roles."""
    first = options.document or 0
    docs = task.documents(seed, split, first, first + 1)
    if options.document is not None:
        return every_position(docs)
    return options.role or [role for role in docs.roles if role != "bos"]


def _corrupted(task: Task, options: GridOptions) -> Role:
    """Return the variable to corrupt: the first one of a task that has no key."""
    variables = variables_of(task)
    without_key = options.corrupt == "key" and "key" not in variables
    return variables[0] if without_key else options.corrupt


def _name_others(task: Task, options: GridOptions, seed: int, split: Split) -> str:
    """Refuse a document that keeps its answer, and name nearby documents that lose theirs."""
    assert options.document is not None
    corrupted = _corrupted(task, options)
    first = max(0, options.document - NEARBY)
    docs = task.documents(seed, split, first, first + 2 * NEARBY)
    usable = docs.index[corrupt_by_kind(task, docs, corrupted, seed, options.kind).usable]
    keeps = f"document={options.document} keeps its answer when its {corrupted} is corrupted"
    if not len(usable):
        return f"{keeps}; so do those around it"
    return f"{keeps}; choose one of {', '.join(map(str, usable))}"
