"""How a model recalls, at the end of training or on its way: the grid of an experiment as rows, and the verdict."""

import math

from mecheval.interventions.config import GridName
from mecheval.interventions.grid import layers_of
from mecheval.interventions.interchange import ROLES, NothingToLose, interchange, stream_sites
from mecheval.interventions.restoration import rows
from mecheval.interventions.verdict import Verdict, judged, needed
from mecheval.metrics.measurement import Measurement
from mecheval.models.build import Model
from mecheval.models.site import sites
from mecheval.tasks.splits import Split
from mecheval.tasks.task import Task


def judgement(
    model: Model, task: Task, grid: GridName, documents: int, seed: int, step: int, split: Split = "test"
) -> tuple[list[Measurement], Verdict | None]:
    """Nothing where no corruption of a key gives another answer, or where the model has no site."""
    names = grid_sites(model, grid)
    if not names:
        return [], None
    roles = [role for role in ROLES if role in task.documents(seed, split, 0, 1).roles]
    try:
        found = interchange(model, task, names, roles, documents=documents, seed=seed, split=split)
    except NothingToLose:
        return [], None
    measured = [row for row in rows(found, step) if math.isfinite(row.low + row.high)]  # not where nobody has the token
    return measured, judged(found, layers_of(sites(model)))


def lacking(model: Model) -> str | None:
    """Why no grid of a model can give a verdict, in one line; None if one can."""
    known = sites(model)
    layers = layers_of(known)
    if not layers:
        return "a verdict needs sites that are called as ours are, blocks.1.block_in, …; the model has none"
    missing = [name for name in needed(layers) if name not in known]
    return f"a verdict needs the sites {', '.join(missing)}; the model does not have them" if missing else None


def grid_sites(model: Model, grid: GridName) -> list[str]:
    """What a grid's name stands for; where sites that a verdict needs are lacking, the short one is the stream's."""
    if grid == "all":
        return [name for name, site in sites(model).items() if not site.materialised]
    short = grid == "short" and not lacking(model)
    stream = needed(layers_of(sites(model))) if short else stream_sites(model)
    return stream + [name for name in sites(model) if name.endswith("conv_out")]
