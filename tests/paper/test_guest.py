"""The paper comes in by entry points, as anyone's recipes, scales, figures and claims do."""

import re
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from mecheval.core import registry
from mecheval.core.registry import Registry
from mecheval.report.claims import claims
from mecheval.report.drawing import figures
from mecheval.sweeps.recipe import recipes, scales

ROOT = Path(__file__).parents[2]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
REGISTRIES = (recipes, scales, figures, claims)


def test_no_other_room_names_a_figure_of_the_paper_or_imports_it():
    package = ROOT / "mecheval"
    for file in package.rglob("*.py"):
        if package / "paper" not in file.parents:
            assert not re.search(r"figure[0-9]|mecheval\.paper", file.read_text()), file


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_what_pyproject_declares_is_registered_and_can_be_imported(registry):
    declared = DECLARED[f"mecheval.{registry.kind}s"]
    assert set(declared) <= set(registry.names()), "run 'pip install -e .'"
    for name in declared:
        assert registry.get(name).__doc__, name


def test_a_third_party_figure_comes_in_by_the_same_door(monkeypatch):
    point = EntryPoint("theirs", "mecheval.report.verdict_figure:demo", "mecheval.figures")
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    assert Registry("figure").names() == ["theirs"]
