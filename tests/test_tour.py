"""The notebook of the tour: its cells run, and what is kept of their outputs is small and ours."""

import json
import re
from pathlib import Path

import pytest

TOUR = Path(__file__).parents[1] / "examples" / "tour.ipynb"


@pytest.fixture(scope="module")
def cells():
    return json.loads(TOUR.read_text(encoding="utf-8"))["cells"]


def test_the_notebook_is_small_has_its_outputs_and_no_path_of_a_machine(cells):
    assert TOUR.stat().st_size <= 300_000
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] for cell in code)
    assert not [cell for cell in code if any(o["output_type"] == "error" for o in cell["outputs"])]
    assert not re.search(r"/(home|root|tmp|work|Users)/", TOUR.read_text(encoding="utf-8"))


def test_the_notebook_shows_the_verdict_figures_and_frames(cells):
    kept = json.dumps(cells)
    assert "induction" in kept
    assert kept.count('"image/png"') >= 2
    assert "Before" in kept
    assert "margin" in kept


@pytest.mark.slow
def test_every_cell_of_the_notebook_runs(tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(TOUR.parents[1]), prepend=":")
    notebook = nbformat.read(TOUR, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    client.NotebookClient(notebook, timeout=900, resources=place).execute()
    shown = json.dumps(notebook.cells)
    assert "induction" in shown
    (run,) = tmp_path.glob("runs/recall-Before-*")
    classes = json.loads((run / "provenance.json").read_text())["content"]["classes"]
    assert classes == {"Before": "a notebook"}
