"""`python -m benchmarks` on the command line."""

import json

import pytest

from benchmarks import floors, size, suite
from benchmarks.cli import main
from benchmarks.ratio import Floor, Job
from mecheval.runs.files import read_json, write_json


@pytest.fixture
def quick(monkeypatch, tiny):
    monkeypatch.setattr(size, "QUICK", tiny)


def test_one_command_prints_ratios_and_writes_json_and_a_page(quick, tmp_path, capsys):
    kept, page = tmp_path / "results.json", tmp_path / "page.md"
    assert main(["documents", "--quick", "--json", str(kept), "--markdown", str(page)]) == 0
    shown = capsys.readouterr()
    record = json.loads(kept.read_text())
    ratios = [line["ratio"] for line in record["parts"]["documents"]["lines"]]
    assert len(ratios) == 6
    assert "ar_32pairs" in shown.out
    assert "documents: atr" in shown.err
    assert "left" in shown.err
    before = page.read_text()
    assert before.count("| atr |") == 3
    assert main(["--from", str(kept), "--markdown", str(page)]) == 0
    assert capsys.readouterr().out == shown.out
    assert page.read_text() == before


def test_the_guard_ends_in_an_error_that_has_the_ratio_and_the_threshold(
    quick, monkeypatch, capsys
):
    monkeypatch.setattr(floors, "FLOORS", {("guard", "AdamW", "torch's default"): Floor(1e9)})
    assert main(["guard", "--quick"]) == 1
    assert "guard: AdamW against torch's default is" in capsys.readouterr().err


def test_the_guard_is_silent_while_nothing_is_lost(quick, monkeypatch, capsys):
    monkeypatch.setattr(floors, "FLOORS", {("guard", "AdamW", "torch's default"): Floor(0.0)})
    assert main(["guard", "--quick"]) == 0
    assert "error" not in capsys.readouterr().err


def test_a_run_that_was_stopped_resumes_with_the_parts_that_are_missing(
    quick, tmp_path, monkeypatch
):
    kept = tmp_path / "results.json"
    measured = []
    jobs = suite.import_module

    def stop_at_startup(name):
        module = jobs(name)
        measured.append(name)
        if name == "benchmarks.startup" and measured.count(name) == 1:
            return type(
                "Stopped",
                (),
                {"jobs": staticmethod(lambda size: [Job("stop", interrupt)]), "CAPTION": ""},
            )
        return module

    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(suite, "import_module", stop_at_startup)
    with pytest.raises(KeyboardInterrupt):
        main(["documents", "startup", "--quick", "--json", str(kept)])
    partial = tmp_path / "results.partial.json"
    before = read_json(partial)["parts"]
    assert list(before) == ["documents"]
    assert not kept.exists()
    assert main(["documents", "startup", "--quick", "--json", str(kept)]) == 0
    after = json.loads(kept.read_text())["parts"]
    assert list(after) == ["documents", "startup"]
    assert after["documents"] == before["documents"], "what was measured is not measured again"
    assert not partial.exists()


def test_a_partial_file_of_another_size_is_not_continued(quick, tmp_path):
    kept, partial = tmp_path / "results.json", tmp_path / "results.partial.json"
    other = {"machine": {}, "size": {}, "parts": {"documents": {"caption": "", "lines": []}}}
    write_json(partial, other)
    assert main(["documents", "--quick", "--json", str(kept)]) == 0
    assert json.loads(kept.read_text())["parts"]["documents"]["lines"]


def test_help_lists_the_parts(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert [part for part in (*suite.PARTS, "guard") if f"  {part} " not in text] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["stpes"], "no such part; did you mean 'steps'?"),
        (["--rounds", "0"], "rounds=0 must be from 1 to 1000"),
        (["--json", "nowhere/at/all.json"], "its folder does not exist"),
        (["--from", "nothing.json"], "from='nothing.json' must be what"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_measured(
    words, said, capsys, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
