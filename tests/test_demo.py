"""The README's first command works, and its verdicts hold on three seeds."""

from dataclasses import replace

import pytest
from support.tiny_scale import as_quick

from mecheval.cli import main
from mecheval.core.spec import Spec
from mecheval.runs.run import run
from mecheval.sweeps.recipe import get_experiments, get_scale

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("architecture", "mechanism"),
    [("attention", "induction"), ("based", "induction"), ("mamba", "direct retrieval")],
)
def test_the_verdict_is_the_same_on_three_seeds(architecture, mechanism, seed, tmp_path):
    every = get_experiments("demo", replace(get_scale("quick"), seeds=(seed,)))
    names = [Spec.parse(one.model.architecture).name for one in every]
    experiment = every[names.index(architecture)]
    found = run(experiment, tmp_path).summary()
    assert found["metrics"]["accuracy"]["low"] > 0.95
    assert found["verdict"]["mechanism"] == mechanism
    value = found["restored"]["blocks.1.block_in"]["value"]["share"]["value"]
    assert value > 0.9 if mechanism == "induction" else abs(value) < 0.1


def test_the_demo_trains_judges_and_names_its_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    as_quick(monkeypatch)
    assert main(["demo", "--seed", "3"]) == 0
    out = capsys.readouterr().out
    for word in ("Attention", "BaseConv", "Based", "DeltaNet", "H3", "Hyena", "Mamba"):
        assert word in out
    assert "shows no use of the key" in " ".join(out.split())
    page = tmp_path / "runs" / "demo-3" / "report.html"
    assert str(page.relative_to(tmp_path)) in out
    assert "DeltaNet" in page.read_text()
    assert main(["demo", "--seed", "3"]) == 0, "what is done is shown again"


def test_a_demo_of_no_workers_is_refused_and_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--workers", "0"]) == 2
    assert "workers=0" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
