"""Helpers for tests of sweeps: tiny experiments, a recipe file, an executor without processes."""

import pytest

from mecheval.core import plugin_files
from mecheval.runs.run import run
from mecheval.sweeps.planned import PlannedRun
from mecheval.sweeps.worker import work
from support.fault_injection import result, small

DIVERGES = {"train_lr": 1e9, "train_warmup": 0.0}
RECIPE = """
from mecheval.runs.experiment import Experiment
from mecheval.sweeps.recipe import recipe

FIELDS = {"task": "recall:pairs=3,vocab=16", "model.architecture": "attention", "model.max_len": 32}
FIELDS |= {"model.d_model": WIDTH}
FIELDS |= {"train.documents": 64, "train.batch": BATCH}
FIELDS |= {"eval.documents": 16, "eval.grid_documents": 16}

@recipe("mine")
def mine(scale):
    "Tiny ones."
    for seed in range(RUNS):
        yield Experiment.of({**FIELDS, "train.steps": STEPS, "eval.every": 50, "seed": seed})
"""


def recipe_file(folder, runs=2, steps=12, width=8, batch=4, more=""):
    path = folder / "mine.py"
    path.write_text(
        f"RUNS, STEPS, WIDTH, BATCH = {runs}, {steps}, {width}, {batch}\n{RECIPE}\n{more}"
    )
    return path


@pytest.fixture
def own_recipes(monkeypatch, own_names):
    """Remove what a file registers after the test."""
    monkeypatch.setattr(plugin_files, "_checksums", {})


def seeds(number, **other):
    return [small(seed=seed, **other) for seed in range(number)]


def results(out):
    """Return everything of every finished run in a folder that must not differ."""
    return {
        path.name: result(path)
        for path in out.iterdir()
        if path.is_dir() and not path.name.endswith(".partial")
    }


def alone(experiments, out):
    """Return the same for runs that are made one by one."""
    for experiment in experiments:
        run(experiment, out)
    return results(out)


class Inline:
    """An executor in this process: everything of a sweep is real but its processes."""

    def __init__(self, workers=1):
        self._outcomes = []

    @property
    def free(self):
        return 1 - len(self._outcomes)

    def start(self, run):
        self._outcomes.append((run, work(PlannedRun.from_json(run.to_json()))))

    def ended(self):
        yield from self._outcomes
        self._outcomes.clear()

    def stop(self):
        pass
