"""Measure a grid of interventions, against pyvene as the paper's authors use it.

Each runs in a process of its own.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from benchmarks.isolated import peak_mb, run_isolated
from benchmarks.measure import single
from benchmarks.pyvene_grid import BATCH, component_sites, pyvene_cells
from benchmarks.ratio import Job, Line, skipped
from benchmarks.rivals import Missing, require
from benchmarks.size import Size
from mecheval.interventions.interchange import interchange
from mecheval.models.config import ModelConfig
from mecheval.models.language_model import LanguageModel
from mecheval.plugins import build_task
from mecheval.runs.experiment import Settings
from mecheval.runs.fit import prepared

CAPTION = (
    "The paper's grid: every component of 2 layers × 2 corruptions × 5 roles, d = 64, 8,192 keys "
    "and values; one round. *pyvene* as the paper's authors use it: one call per cell, which runs "
    "clean, corrupt and patched documents with all logits. The weights are untrained, but large "
    "enough that a corruption matters; the note says how closely both agree. *pyvene's memory* is "
    "the peak of its process over that of ours."
)
LINEAR = {"attention": 10.0, "mamba": 2.0}  # init_linear; mamba's default is large already
CORRUPTIONS: tuple[Literal["key", "value"], ...] = ("key", "value")
ROLES = ("key", "value", "next_key", "divider", "query")
METRICS = ("likelihood", "logit")

Cells = dict[str, list[list[float]]]  # for each cell, each metric of each document


def jobs(size: Size) -> Iterator[Job]:
    for architecture in LINEAR:
        if architecture in size.architectures:
            yield Job(architecture, partial(lines, architecture, size), weight=20 + size.grid)


def lines(architecture: str, size: Size) -> Iterator[Line]:
    try:
        require("pyvene")
    except Missing as error:
        yield skipped(architecture, "pyvene", str(error))
        return
    arguments = {"architecture": architecture, "task": size.grid_task, "documents": size.grid}
    ours, theirs = (run_isolated(measure_grid, name=name, **arguments) for name in CONTESTANTS)
    notes = {"cpu_ms": agreement(ours["cells"], theirs["cells"]), "mb": ""}
    for against, kind in (("pyvene", "cpu_ms"), ("pyvene's memory", "mb")):
        yield Line(
            architecture,
            against,
            ratio=theirs[kind] / ours[kind],
            ours=single(kind, ours[kind]),
            theirs=single(kind, theirs[kind]),
            note=notes[kind],
        )


def agreement(ours: Cells, theirs: Cells) -> str:
    """Describe how far both differ, beside how far the cells of one document differ."""
    assert ours.keys() == theirs.keys()
    # axes: cell, contestant, metric, document
    cells = np.array([[ours[cell], theirs[cell]] for cell in ours])
    differences = np.abs(cells[:, 0] - cells[:, 1]).max(axis=(0, 2))
    ranges = np.ptp(cells[:, 0], axis=0).max(axis=1)
    by_metric = [
        f"{metric}s differ by {difference:.0e}, cells by {between_cells:.0e}"
        for metric, difference, between_cells in zip(METRICS, differences, ranges, strict=True)
    ]
    return f"{len(cells)} cells × {cells.shape[-1]} documents; {'; '.join(by_metric)}"


def measure_grid(name: str, architecture: str, task: str, documents: int) -> dict[str, Any]:
    recall = build_task(task)
    config = ModelConfig(
        architecture=architecture, d_model=64, init_linear=LINEAR[architecture], init_embedding=10.0
    )
    model = LanguageModel(config, recall.vocab_size)
    with prepared(Settings()):
        CONTESTANTS[name](model, recall, 2)  # import, compile, and fill the caches
        start = time.process_time()
        cells = CONTESTANTS[name](model, recall, documents)
        seconds = time.process_time() - start
    return {"cpu_ms": 1e3 * seconds, "mb": peak_mb(), "cells": cells}


def mecheval_grid(model: LanguageModel, task: Any, documents: int) -> Cells:
    cells = {}
    sites = component_sites(model)
    for corrupt in CORRUPTIONS:
        grid = interchange(model, task, sites, ROLES, corrupt=corrupt, documents=documents)
        for (_, site, role), values in grid.cells.items():
            cells[f"{corrupt} {site} {role}"] = [values[metric].tolist() for metric in METRICS]
    return cells


def pyvene_grid(model: LanguageModel, task: Any, documents: int) -> Cells:
    cells: Cells = {}
    sites = component_sites(model)
    for start in range(0, documents, BATCH):
        docs = task.documents(0, "test", start, min(start + BATCH, documents))
        answers = torch.from_numpy(docs.answer).long()[:, None]
        for corrupt in CORRUPTIONS:
            corruption = task.corrupt(docs, corrupt, 0)
            assert corruption.usable.all(), "mecheval leaves out the others"
            for site, role, logits in pyvene_cells(model, docs, corruption.documents, sites, ROLES):
                cell = cells.setdefault(f"{corrupt} {site} {role}", [[], []])
                for values, metric in zip(cell, (logits.softmax(dim=-1), logits), strict=True):
                    values += metric.gather(1, answers)[:, 0].tolist()
    return cells


CONTESTANTS: dict[str, Callable[[LanguageModel, Any, int], Cells]] = {
    "ours": mecheval_grid,
    "pyvene": pyvene_grid,
}
