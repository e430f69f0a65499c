"""A card reads its lines from many runs and measures in the best of them."""

import numpy as np
import pytest
from support.made_runs import behaviour, experiment, finished, planned, verdict

from mecheval.cards.facts import best_runs, lines
from mecheval.report.study import Study

DEV = {(1e-3, 0): 0.2, (1e-3, 1): 0.95, (3e-3, 0): 0.8, (3e-3, 1): 0.9, (3e-3, 2): 0.9}


@pytest.fixture
def study(tmp_path):
    """Make runs at two rates, the better without the best run; better on dev is worse on test."""
    every = {(lr, seed): experiment(lr=lr, seed=seed) for lr, seed in DEV}
    lost = experiment(lr=1e-2)
    planned(tmp_path, "card", [*every.values(), lost])
    for place, one in every.items():
        finished(tmp_path, one, behaviour(DEV[place], 1 - DEV[place]), said=verdict())
    finished(tmp_path, lost, status="diverged", reason="nan")
    return Study.read(tmp_path)


def test_the_best_run_on_dev_is_measured(study):
    found = best_runs(study, "attention")
    assert [path.name for path in found.values()] == [experiment(lr=3e-3, seed=1).name]
    assert best_runs(study, "mamba") == {}


def test_the_rate_is_chosen_on_dev_and_reported_on_test(study):
    (line,) = lines(study, ["attention"])
    assert line.rate == 3e-3
    assert line.accuracy.value == pytest.approx(1 - np.mean([0.8, 0.9, 0.9]))
    assert (line.accuracy.seeds, line.agree, line.judged) == (3, 3, 3)
    assert [(rate["rate"], rate["dev_accuracy"], rate["chosen"]) for rate in line.rates] == [
        (1e-3, pytest.approx(0.575), False),
        (3e-3, pytest.approx(np.mean([0.8, 0.9, 0.9])), True),
        (1e-2, None, False),
    ]
    assert line.outcomes == {"done": 5, "diverged": 1, "failed": 0, "missing": 0}


def test_folders_are_joined_as_if_they_were_one(study, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    finished(other, experiment("mamba", train__stop=0.5), behaviour(0.5, 0.5))
    joined = Study.joined([study, Study.read(other)])
    assert joined.folder == study.folder
    assert joined.counts == {"done": 6, "diverged": 1, "failed": 0, "missing": 0}
    assert len(joined.rows) == len(study.rows) + 6
    assert [line.architecture for line in lines(joined, ["mamba", "attention"])] == [
        "mamba",
        "attention",
    ]
    assert joined.runs["model.d_model"].dtype == study.runs["model.d_model"].dtype
