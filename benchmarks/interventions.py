"""A grid of interventions, against pyvene driven as the paper's authors drove it, each in a process of its own."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from benchmarks.isolated import apart, peak_mb
from benchmarks.measure import once
from benchmarks.pyvene_grid import BATCH, component_sites, pyvene_cells
from benchmarks.ratio import Job, Line, skipped
from benchmarks.rivals import Missing, present
from benchmarks.size import Size
from mecheval.interventions.interchange import interchange
from mecheval.models.config import ModelConfig
from mecheval.models.language_model import LanguageModel
from mecheval.plugins import build_task
from mecheval.runs.experiment import Settings
from mecheval.runs.fit import prepared

CAPTION = (
    "The paper's grid: every component of 2 layers × 2 corruptions × 5 roles, d = 64, 8,192 keys and values; one "
    "round. *pyvene* as the paper's authors drove it: a call for each cell that runs clean, corrupt and patched "
    "documents with all logits. Weights are untrained, but so large that a corruption matters: both must find the "
    "same. *pyvene's memory* is the peak of its process over that of ours."
)
LINEAR = {"attention": 10.0, "mamba": 2.0}  # of the start; mamba's own is large already
CORRUPTIONS: tuple[Literal["key", "value"], ...] = ("key", "value")
ROLES = ("key", "value", "next_key", "divider", "query")
METRICS = ("likelihood", "logit")

Found = dict[str, list[list[float]]]  # by cell, each metric of each document


def jobs(size: Size) -> Iterator[Job]:
    for architecture in LINEAR:
        if architecture in size.architectures:
            yield Job(architecture, partial(lines, architecture, size), weight=20 + size.grid)


def lines(architecture: str, size: Size) -> Iterator[Line]:
    try:
        present("pyvene")
    except Missing as error:
        yield skipped(architecture, "pyvene", str(error))
        return
    given = {"architecture": architecture, "task": size.grid_task, "documents": size.grid}
    ours, theirs = (apart(contest, name=name, **given) for name in CONTESTANTS)
    note = agreement(ours.pop("cells"), theirs.pop("cells"))
    for against, kind in (("pyvene", "cpu_ms"), ("pyvene's memory", "mb")):
        ratio, (one, other) = (
            theirs[kind] / ours[kind],
            (once(kind, found[kind]) for found in (ours, theirs)),
        )
        yield Line(
            architecture,
            against,
            ratio,
            ours=one,
            theirs=other,
            note=note if kind == "cpu_ms" else "",
        )


def agreement(ours: Found, theirs: Found) -> str:
    assert ours.keys() == theirs.keys()
    cells = np.array(
        [[ours[cell], theirs[cell]] for cell in ours]
    )  # cell, contestant, metric, document
    apart_by = np.abs(cells[:, 0] - cells[:, 1]).max(axis=(0, 2))
    spread = np.ptp(cells[:, 0], axis=0).max(axis=1)  # of a document between its cells
    said = [
        f"{metric}s differ by {a:.0e}, cells by {b:.0e}"
        for metric, a, b in zip(METRICS, apart_by, spread, strict=True)
    ]
    return f"{len(cells)} cells × {cells.shape[-1]} documents; {'; '.join(said)}"


def contest(name: str, architecture: str, task: str, documents: int) -> dict[str, Any]:
    drawn = build_task(task)
    config = ModelConfig(
        architecture=architecture, d_model=64, init_linear=LINEAR[architecture], init_embedding=10.0
    )
    model = LanguageModel(config, drawn.vocab_size)
    with prepared(Settings()):
        CONTESTANTS[name](model, drawn, 2)  # import, compile, and fill the caches
        start = time.process_time()
        cells = CONTESTANTS[name](model, drawn, documents)
        seconds = time.process_time() - start
    return {"cpu_ms": 1e3 * seconds, "mb": peak_mb(), "cells": cells}


def by_us(model: LanguageModel, task: Any, documents: int) -> Found:
    found = {}
    for corrupt in CORRUPTIONS:
        grid = interchange(
            model, task, component_sites(model), ROLES, corrupt=corrupt, documents=documents
        )
        for (_, site, role), values in grid.cells.items():
            found[f"{corrupt} {site} {role}"] = [values[metric].tolist() for metric in METRICS]
    return found


def by_pyvene(model: LanguageModel, task: Any, documents: int) -> Found:
    found: Found = {}
    for start in range(0, documents, BATCH):
        docs = task.documents(0, "test", start, min(start + BATCH, documents))
        answers = torch.from_numpy(docs.answer).long()[:, None]
        for corrupt in CORRUPTIONS:
            twins = task.corrupt(docs, corrupt, 0)
            assert twins.usable.all(), "ours leaves out the others"
            for site, role, logits in pyvene_cells(
                model, docs, twins.documents, component_sites(model), ROLES
            ):
                kept = found.setdefault(f"{corrupt} {site} {role}", [[], []])
                for values, new in zip(kept, (logits.softmax(dim=-1), logits), strict=True):
                    values += new.gather(1, answers)[:, 0].tolist()
    return found


CONTESTANTS: dict[str, Callable[[LanguageModel, Any, int], Found]] = {
    "ours": by_us,
    "pyvene": by_pyvene,
}
