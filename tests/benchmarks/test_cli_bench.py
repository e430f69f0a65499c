"""`mecheval bench` on the command line."""

import json

import pytest

from benchmarks import floors, size, suite
from benchmarks.line import Floor
from mecheval.cli import main


@pytest.fixture
def quick(monkeypatch, tiny):
    monkeypatch.setattr(size, "QUICK", tiny)


def test_one_command_prints_ratios_and_writes_json_and_a_page(quick, tmp_path, capsys):
    kept, page = tmp_path / "results.json", tmp_path / "page.md"
    assert main(["bench", "documents", "--quick", "--json", str(kept), "--markdown", str(page)]) == 0
    shown = capsys.readouterr()
    record = json.loads(kept.read_text())
    ratios = [line["ratio"] for line in record["parts"]["documents"]["lines"]]
    assert len(ratios) == 6
    assert "ar_32pairs" in shown.out
    assert "documents: atr" in shown.err
    assert "left" in shown.err
    before = page.read_text()
    assert before.count("| atr |") == 3
    assert main(["bench", "--from", str(kept), "--markdown", str(page)]) == 0
    assert capsys.readouterr().out == shown.out
    assert page.read_text() == before


def test_the_guard_ends_in_an_error_that_has_the_ratio_and_the_threshold(quick, monkeypatch, capsys):
    monkeypatch.setattr(floors, "FLOORS", {("guard", "AdamW", "torch's default"): Floor(1e9)})
    assert main(["bench", "guard", "--quick"]) == 1
    assert "guard: AdamW against torch's default is" in capsys.readouterr().err


def test_the_guard_is_silent_while_nothing_is_lost(quick, monkeypatch, capsys):
    monkeypatch.setattr(floors, "FLOORS", {("guard", "AdamW", "torch's default"): Floor(0.0)})
    assert main(["bench", "guard", "--quick"]) == 0
    assert "error" not in capsys.readouterr().err


def test_parts_are_listed(capsys):
    assert main(["bench", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*suite.PARTS, "guard"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["stpes"], "no such part; did you mean 'steps'?"),
        (["--rounds", "0"], "rounds=0 must be from 1 to 1000"),
        (["--json", "nowhere/at/all.json"], "must be a file in a folder that is there"),
        (["--from", "nothing.json"], "from='nothing.json' must be what"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_measured(words, said, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", *words]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
