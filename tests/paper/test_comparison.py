"""Published numbers stand beside ours only where the settings are the same."""

import math

import pytest
from support.made_runs import behaviour, experiment, finished, grid, planned

from mecheval.paper.comparison import beside
from mecheval.report.study import Study
from mecheval.report.tables import Reading, read


def test_the_papers_number_and_the_difference_stand_beside_ours_where_the_setting_is_the_same(
    tmp_path,
):
    one = experiment(
        "mamba",
        lr=1e-3,
        task="recall:pairs=16",
        model__d_model=256,
        train__steps=None,
        train__batch=32,
    )
    planned(tmp_path, "figure3", [one])
    finished(tmp_path, one, behaviour(0.9, 0.9) + grid(0.9, 0.05, {"query": 1.0}))
    line = read(Study.read(tmp_path), [Reading(panel="Original")], beside=beside("3")).iloc[0]
    assert (line["published"], line["why"]) == (0.903, "")
    assert line["difference"] == pytest.approx(0.9 - 0.903)


def test_another_setting_is_not_compared_and_says_what_differs(tmp_path):
    one = experiment("mamba", task="recall:pairs=4,vocab=64", model__d_model=256)
    planned(tmp_path, "figure3", [one])
    finished(tmp_path, one, behaviour(0.9, 0.9) + grid(0.9, 0.05, {"query": 1.0}))
    line = read(Study.read(tmp_path), [Reading(panel="Original")], beside=beside("3")).iloc[0]
    assert math.isnan(line["published"])
    assert "recall:pairs=16" in line["why"]
