"""How fast a grid of interventions is, as a ratio to pyvene driven as the paper's authors drove it, in the same run.

The grid is the paper's: every component of 2 layers × 2 corruptions × 5 roles, 320 documents, d = 64, 8,192 keys and
values. Weights are untrained, but so large that a corruption matters: both must find the same. Each contestant has a
process of its own, one thread, and tells its CPU seconds and its peak memory. Pyvene takes minutes; `--documents 64` is
shorter.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.rivals import BATCH, component_sites, pyvene_cells
from mecheval.interventions.interchange import interchange
from mecheval.models.config import ModelConfig
from mecheval.models.language_model import LanguageModel
from mecheval.plugins import build_task

FLOORS = {"attention": 80, "mamba": 40}
LINEAR = {"attention": 10.0, "mamba": 2.0}  # mamba's own start is large already
TASK = "ar_16pairs"  # the paper says 32 pairs; its numbers come from 16
CORRUPTIONS = ("key", "value")
ROLES = ("key", "value", "next_key", "divider", "query")
METRICS = ("likelihood", "logit")

Found = dict[str, list[list[float]]]  # by cell, each metric of each document


def ours(model: LanguageModel, task: Any, documents: int) -> Found:
    found = {}
    for corrupt in CORRUPTIONS:
        grid = interchange(model, task, component_sites(model), ROLES, corrupt=corrupt, documents=documents)
        for (_, site, role), values in grid.cells.items():
            found[f"{corrupt} {site} {role}"] = [values[metric].tolist() for metric in METRICS]
    return found


def pyvene(model: LanguageModel, task: Any, documents: int) -> Found:
    found: Found = {}
    began = time.process_time()
    for start in range(0, documents, BATCH):
        docs = task.documents(0, "test", start, min(start + BATCH, documents))
        answers = torch.from_numpy(docs.answer).long()[:, None]
        for corrupt in CORRUPTIONS:
            twins = task.corrupt(docs, corrupt, 0)
            assert twins.usable.all(), "ours leaves out the others"
            for site, role, logits in pyvene_cells(model, docs, twins.documents, component_sites(model), ROLES):
                kept = found.setdefault(f"{corrupt} {site} {role}", [[], []])
                for values, new in zip(kept, (logits.softmax(dim=-1), logits), strict=True):
                    values += new.gather(1, answers)[:, 0].tolist()
        seconds = time.process_time() - began
        print(f"  pyvene: {start + len(docs)} of {documents} documents, {seconds:.0f} s", file=sys.stderr, flush=True)
    return found


CONTESTANTS: dict[str, Callable[[LanguageModel, Any, int], Found]] = {"ours": ours, "pyvene": pyvene}


def contest(name: str, architecture: str, task_name: str, documents: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    task = build_task(task_name)
    weights = {"init_linear": LINEAR[architecture], "init_embedding": 10.0}
    model = LanguageModel(ModelConfig(architecture=architecture, d_model=64, **weights), task.vocab_size)
    CONTESTANTS[name](model, task, 2)  # import, compile, and fill the caches
    before, start = _peak(), time.process_time()
    cells = CONTESTANTS[name](model, task, documents)
    return {"seconds": time.process_time() - start, "peak_mb": _peak(), "peak_mb_before": before, "cells": cells}


def _peak() -> float:
    """Megabytes, as Linux counts."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(name: str, architecture: str, task: str, documents: int) -> dict[str, Any]:
    """A contest in a process of its own: peaks do not mix."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        asked = ["--task", task, "--documents", str(documents), "--contestant", name, architecture, "--json", str(file)]
        subprocess.run([sys.executable, "-m", "benchmarks.interventions", *asked], check=True, stdout=sys.stderr)
        return json.loads(file.read_text())


def compared(architecture: str, task: str, documents: int) -> dict[str, Any]:
    found = {name: measured(name, architecture, task, documents) for name in CONTESTANTS}
    one, other = (found[name].pop("cells") for name in CONTESTANTS)
    assert one.keys() == other.keys()
    cells = np.array([[one[cell], other[cell]] for cell in one])  # cell, contestant, metric, document
    differences = np.abs(cells[:, 0] - cells[:, 1]).max(axis=(0, 2))
    spread = np.ptp(cells[:, 0], axis=0).max(axis=1)  # of a document between its cells
    return {
        **found,
        "cells": len(one),
        "documents": cells.shape[-1],
        "times": found["pyvene"]["seconds"] / found["ours"]["seconds"],
        "differences": dict(zip(METRICS, differences.tolist(), strict=True)),
        "spread": dict(zip(METRICS, spread.tolist(), strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=320)
    parser.add_argument("--task", default=TASK)
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    parser.add_argument("--contestant", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contestant:
        found = contest(*arguments.contestant, arguments.task, arguments.documents)
        arguments.json.write_text(json.dumps(found))
        return
    results = {}
    for name, floor in FLOORS.items():
        results[name] = found = compared(name, arguments.task, arguments.documents)
        _print(f"{name} d=64, {arguments.task}, {found['cells']} cells × {found['documents']} documents", found, floor)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


def _print(title: str, found: dict[str, Any], floor: int) -> None:
    print(title)
    for name in CONTESTANTS:
        own = found[name]
        print(
            f"  {name:<8}{own['seconds']:>8.1f} s{own['peak_mb']:>8.0f} MB at most, {own['peak_mb_before']:.0f} before"
        )
    print(f"  {found['times']:.1f}× as fast; the floor is {floor}×")
    for metric in METRICS:
        apart, spread = found["differences"][metric], found["spread"][metric]
        print(f"  {metric}s differ by {apart:.1e} at most; between cells they vary by {spread:.1e}", flush=True)


if __name__ == "__main__":
    main()
