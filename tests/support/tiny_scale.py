"""A scale at which every recipe is run in seconds, and sweeps at that scale: nothing is learned."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from mecheval.runs.run import run
from mecheval.sweeps.recipe import Scale, Size, get_experiments, scales
from support.made_runs import planned

TINY_FIELDS = ["model.d_model=8", "train.steps=3", "train.batch=8"]  # words of `mecheval run`
TINY_FIELDS += ["eval.documents=16", "eval.grid_documents=16"]
_FIELDS = {"train.steps": 4, "train.batch": 8, "eval.every": 2}
_FIELDS |= {"eval.documents": 16, "eval.grid_documents": 8}

MICRO = Scale(
    name="micro",
    recall=Size(widths=(8,), rates=(1e-2,), options={"pairs": 3, "vocab": 16}, fields=_FIELDS),
    treecall=Size(widths=(8,), rates=(1e-2,), options={"max_len": 32}, fields=_FIELDS),
    lengths=(16, 32),
    tokens=64,
)


def micro_scale(recipe: str) -> Scale:
    """Return the scale at which a recipe is run: a head of Mamba-2 needs a width of 16."""
    if recipe not in ("mamba3", "modern"):
        return MICRO
    recall, treecall = (replace(size, widths=(16,)) for size in (MICRO.recall, MICRO.treecall))
    return replace(MICRO, recall=recall, treecall=treecall)


def as_quick(monkeypatch, scale: Scale = MICRO) -> None:
    """Register the scale as `quick` until the test ends."""
    monkeypatch.setitem(scales._targets, "quick", lambda: scale)


@cache
def _sweep(recipe: str, out: Path) -> Path:
    experiments = get_experiments(recipe, micro_scale(recipe))
    planned(out, recipe, experiments, "micro")
    for experiment in experiments:
        run(experiment, out)
    return out


@pytest.fixture(scope="session")
def micro(tmp_path_factory):
    """The folder of a recipe's sweep at micro scale, run once for all tests."""
    place = tmp_path_factory.getbasetemp() / "micro"
    return lambda recipe: _sweep(recipe, place / recipe)
