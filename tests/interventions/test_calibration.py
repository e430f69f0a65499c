"""The confidence of a verdict is the part of planted models of which it is true."""

import runpy
from pathlib import Path

import numpy as np
import pytest

CALIBRATION = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "calibration.py"))


def excess(every):
    """Return by how many standard errors the confidence is above what is right."""
    sure = np.array([one.confidence for one in every])
    right = np.array([one.right for one in every])
    return (sure.sum() - right.sum()) / np.sqrt((sure * (1 - sure)).sum())


def test_a_subset_of_planted_models_is_judged_as_rightly_as_it_says():
    every = list(CALIBRATION["judgements"](range(2000, 2012), (64,), 1))
    assert len(every) == 12
    assert abs(excess(every)) < 3


@pytest.mark.slow
@pytest.mark.parametrize("n", [30, 320])
def test_planted_models_are_judged_as_rightly_as_it_says(n):
    every = list(CALIBRATION["judgements"](range(2000, 2120), (n,), 1))
    assert abs(excess(every)) < 3
    certain = [one.right for one in every if one.confidence == 1]
    assert len(certain) > 5
    assert np.mean(certain) > 0.9
