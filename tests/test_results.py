"""docs/results says what its tables say: every figure is drawn again, every claim asked again, and compared."""

import re
import runpy
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from mecheval.report.files import save
from mecheval.report.study import Study

RESULTS = Path(__file__).parents[1] / "docs" / "results"
GENERATE = runpy.run_path(str(RESULTS / "generate.py"))
FOLDERS = GENERATE["folders"]()


def read(name):
    return (RESULTS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_figure_is_what_its_tables_give(folder, tmp_path):
    """To a hundredth of the grey scale, since another version of a font moves edges."""
    save(GENERATE["sheet"](Study.read(folder)), tmp_path / "again.png")
    kept, again = (matplotlib.image.imread(path) for path in (folder / "figure.png", tmp_path / "again.png"))
    assert kept.shape == again.shape
    assert np.abs(kept - again).mean() < 0.01


def test_the_claims_are_what_the_tables_say():
    assert read("README.md") == GENERATE["readme"](), "run docs/results/generate.py"


def test_the_report_is_what_the_tables_give():
    """But for its pictures, which are compared above."""
    kept, again = (re.sub('src="data:image[^"]*"', "", text) for text in (read("report.html"), GENERATE["report"]()))
    assert kept == again, "run docs/results/generate.py"


def test_every_claim_has_its_reason_and_no_reason_states_a_percentage():
    words = GENERATE["words"]()
    assert not [text for part in ("why", "figures") for text in words[part].values() if "%" in text]
    assert {found.claim.name for found in GENERATE["findings"]()} <= set(words["why"])


def test_numbers_rest_on_runs_of_the_stated_recipes_alone():
    """A claim's runs are those of its recipe at `small`, with three seeds, and the rate is dev's."""
    for found in GENERATE["findings"]():
        folder = RESULTS / found.claim.recipe
        assert folder in FOLDERS
        assert set(Study.read(folder).field("seed")) == {0, 1, 2}


def test_the_tables_are_small_enough_to_be_kept():
    assert sum(file.stat().st_size for file in RESULTS.glob("*/*") if file.suffix != ".png") < 5_000_000
