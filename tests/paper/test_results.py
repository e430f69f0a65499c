"""docs/results is what its tables give: figures and claims are made again and compared."""

import re
import runpy
from itertools import zip_longest
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from mecheval.report.files import save
from mecheval.report.numbers import UNDECIDED
from mecheval.report.study import Study

pytestmark = pytest.mark.slow

RESULTS = Path(__file__).parents[2] / "docs" / "results"
GENERATE = runpy.run_path(str(RESULTS / "generate.py"))
FOLDERS = GENERATE["folders"]()


@pytest.fixture(scope="module")
def findings():
    """The findings for every claim; reading all tables takes seconds, so not at import."""
    return GENERATE["findings"]()


def read(name):
    return (RESULTS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_figure_is_what_its_tables_give(folder, tmp_path):
    """To a hundredth of the grey scale, since another version of a font moves edges."""
    save(GENERATE["draw_study"](Study.read(folder)), tmp_path / "again.png")
    kept, again = (
        matplotlib.image.imread(path) for path in (folder / "figure.png", tmp_path / "again.png")
    )
    assert kept.shape == again.shape
    assert np.abs(kept - again).mean() < 0.01


def test_the_claims_are_what_the_tables_say():
    assert read("README.md") == GENERATE["readme"](), "run docs/results/generate.py"


def test_the_report_is_what_the_tables_give():
    """But for its pictures, which are compared above."""
    kept, again = (
        re.sub('src="data:image[^"]*"', "", text)
        for text in (read("report.html"), GENERATE["report"]())
    )
    # the first line that differs: pytest would compare 5 MB letter by letter, for hours
    lines = zip_longest(kept.splitlines(), again.splitlines())
    differing = next(((old[:200], new[:200]) for old, new in lines if old != new), None)
    assert differing is None, "run docs/results/generate.py"


def test_every_claim_has_its_reason_and_no_reason_states_a_percentage(findings):
    words = GENERATE["words"]()
    assert not [
        text
        for part in (*GENERATE["WHY"].values(), "figures")
        for text in words[part].values()
        if "%" in text
    ]
    for scale, part in GENERATE["WHY"].items():
        told = {name for name, found in findings.items() if scale in [one.scale for one in found]}
        assert told == set(words[part])
    # a study of the queue has its words before its runs
    assert {folder.name for folder in FOLDERS} <= set(words["figures"])


def test_a_claim_is_asked_at_small_or_says_why_not(findings):
    asked = {name for name, found in findings.items() if "small" in [one.scale for one in found]}
    assert set(findings) - asked <= set(GENERATE["words"]()["missing"])
    assert len(asked) >= 35


def test_no_answer_rests_on_fewer_than_three_seeds_or_on_another_recipe(findings):
    for one in (one for found in findings.values() for one in found):
        assert all(number.seeds >= 3 for number in one.numbers if number.answer != UNDECIDED)
        assert (
            RESULTS / f"{one.claim.recipe}{'-laptop' if one.scale == 'laptop' else ''}" in FOLDERS
        )


def test_the_tables_are_small_enough_to_be_kept():
    assert (
        sum(file.stat().st_size for file in RESULTS.glob("*/*") if file.suffix != ".png")
        < 5_000_000
    )
