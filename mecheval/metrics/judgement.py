"""How a model recalls, at the end of training or on its way: the grid of an experiment as rows, and the verdict."""

import math

from mecheval.interventions.interchange import ROLES, NothingToLose, interchange, stream_sites
from mecheval.metrics.measurement import Measurement
from mecheval.metrics.mechanism import Verdict, judged, needed
from mecheval.metrics.restoration import rows
from mecheval.models.language_model import LanguageModel
from mecheval.models.site import sites
from mecheval.tasks.held_out import Split
from mecheval.tasks.task import Task
from mecheval.training.config import GridName


def judgement(
    model: LanguageModel, task: Task, grid: GridName, documents: int, seed: int, step: int, split: Split = "test"
) -> tuple[list[Measurement], Verdict | None]:
    """Nothing where no corruption of a key gives another answer."""
    roles = [role for role in ROLES if role in task.documents(seed, split, 0, 1).roles]
    try:
        found = interchange(model, task, grid_sites(model, grid), roles, documents=documents, seed=seed, split=split)
    except NothingToLose:
        return [], None
    measured = [row for row in rows(found, step) if math.isfinite(row.low + row.high)]  # not where nobody has the token
    return measured, judged(found, len(model.blocks))


def grid_sites(model: LanguageModel, grid: GridName) -> list[str]:
    """What a grid's name stands for."""
    if grid == "all":
        return [name for name, site in sites(model).items() if not site.materialised]
    stream = needed(len(model.blocks)) if grid == "short" else stream_sites(model)
    return stream + [name for name in sites(model) if name.endswith("conv_out")]
