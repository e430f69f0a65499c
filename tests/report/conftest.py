"""Micro sweeps, really run, once for all tests of the report."""

from functools import cache
from pathlib import Path

import pytest
from support.made_runs import planned
from support.tiny_scale import MICRO

from mecheval.paper.recipes import named
from mecheval.runs.run import run


@pytest.fixture(scope="session")
def micro(tmp_path_factory):
    """The folder of a recipe's sweep at micro scale."""

    @cache
    def folder(recipe: str) -> Path:
        every = named(recipe).experiments(MICRO)
        out = tmp_path_factory.mktemp(recipe)
        planned(out, recipe, every, "micro")
        for one in every:
            run(one, out)
        return out

    return folder
