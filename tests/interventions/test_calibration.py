"""The confidence of a verdict is the part of planted models of which it is true."""

import runpy
from pathlib import Path

import numpy as np
import pytest

PLANTED = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "planted.py"))
OTHERS = 2305  # a seed of models that docs/calibration.md does not have


def judged(models, numbers, n):
    return list(PLANTED["judgements"](models, numbers, (n,), 1, OTHERS))


def excess(every):
    """Return by how many standard errors the confidence is above what is right."""
    sure = np.array([one.confidence for one in every])
    right = np.array([one.right for one in every])
    return (sure.sum() - right.sum()) / np.sqrt((sure * (1 - sure)).sum())


def test_a_subset_of_planted_models_is_judged_as_rightly_as_it_says():
    every = judged("near the thresholds", range(12), 64)
    assert len(every) == 12
    assert abs(excess(every)) < 3


@pytest.mark.slow
@pytest.mark.parametrize("n", [30, 320])
@pytest.mark.parametrize("models", ["near the thresholds", "anywhere"])
def test_planted_models_are_judged_as_rightly_as_it_says(models, n):
    every = judged(models, range(120), n)
    assert abs(excess(every)) < 3
    certain = [one.right for one in every if one.confidence == 1]
    assert len(certain) > 5
    assert np.mean(certain) > 0.9


def test_the_interval_of_a_share_covers_it_where_the_percentile_bootstrap_does_not():
    first = next(PLANTED["coverage"](200))
    assert first.n == 30
    assert first.covered / first.studies > 0.93
    assert first.bootstrap_covered / first.studies < 0.87


def test_more_documents_name_more_mechanisms():
    weakest = [one for one, _ in zip(PLANTED["power"](12), range(4), strict=False)]
    assert [one.n for one in weakest] == [30, 64, 128, 320]
    assert weakest[0].named < weakest[0].studies, "a share of 0.51 is hard to tell from 0.5"
