"""Run `python -m benchmarks` as its users do."""

import json

import pytest

from benchmarks import floors, size, startup, suite
from benchmarks.cli import main
from benchmarks.ratio import Floor, Job
from mecheval.runs.files import read_json, write_json

pytestmark = pytest.mark.slow


@pytest.fixture
def quick(monkeypatch, tiny):
    monkeypatch.setattr(size, "QUICK", tiny)


@pytest.mark.slow
def test_one_command_prints_ratios_and_writes_json_and_a_page(quick, tmp_path, capsys):
    results, page = tmp_path / "results.json", tmp_path / "page.md"
    assert main(["documents", "--quick", "--json", str(results), "--markdown", str(page)]) == 0
    output = capsys.readouterr()
    record = json.loads(results.read_text())
    ratios = [line["ratio"] for line in record["parts"]["documents"]["lines"]]
    assert len(ratios) == 6
    assert "ar_32pairs" in output.out
    assert "documents: atr" in output.err
    assert "left" in output.err
    before = page.read_text()
    assert before.count("| atr |") == 3
    assert main(["--from", str(results), "--markdown", str(page)]) == 0
    assert capsys.readouterr().out == output.out
    assert page.read_text() == before


def test_the_guard_fails_with_the_ratio_that_misses_its_floor(quick, monkeypatch, capsys):
    monkeypatch.setattr(floors, "FLOORS", {("guard", "AdamW", "torch's default"): Floor(1e9)})
    assert main(["guard", "--quick"]) == 1
    assert "guard: AdamW against torch's default is" in capsys.readouterr().err


def test_the_guard_passes_if_no_ratio_misses_its_floor(quick, monkeypatch, capsys):
    monkeypatch.setattr(floors, "FLOORS", {("guard", "AdamW", "torch's default"): Floor(0.0)})
    assert main(["guard", "--quick"]) == 0
    assert "error" not in capsys.readouterr().err


def test_a_stopped_run_resumes_with_the_missing_parts(quick, tmp_path, monkeypatch):
    results, partial = tmp_path / "results.json", tmp_path / "results.partial.json"
    command = ["documents", "startup", "--quick", "--json", str(results)]

    def interrupt(size):
        def run():
            raise KeyboardInterrupt

        return [Job("interrupt", run)]

    with monkeypatch.context() as context:
        context.setattr(startup, "jobs", interrupt)
        with pytest.raises(KeyboardInterrupt):
            main(command)
    before = read_json(partial)["parts"]
    assert list(before) == ["documents"]
    assert not results.exists()
    assert main(command) == 0
    after = json.loads(results.read_text())["parts"]
    assert list(after) == ["documents", "startup"]
    assert after["documents"] == before["documents"], "a finished part is not measured again"
    assert not partial.exists()


def test_a_partial_file_of_another_size_is_replaced(quick, tmp_path):
    results, partial = tmp_path / "results.json", tmp_path / "results.partial.json"
    other = {"machine": {}, "size": {}, "parts": {"documents": {"caption": "", "lines": []}}}
    write_json(partial, other)
    assert main(["documents", "--quick", "--json", str(results)]) == 0
    assert json.loads(results.read_text())["parts"]["documents"]["lines"]


def test_help_lists_the_parts(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert [part for part in (*suite.PARTS, "guard") if f"  {part} " not in text] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stpes"], "no part 'stpes'; did you mean 'steps'?"),
        (["--rounds", "0"], "rounds=0 must be from 1 to 1000"),
        (["--json", "nowhere/at/all.json"], "its folder does not exist"),
        (["--from", "nothing.json"], "from='nothing.json' cannot be read"),
        (["documents", "--markdown", "/"], "markdown='/' cannot be read"),
        (["documents", "--markdown", "/usr/bin/env"], "markdown='/usr/bin/env' cannot be read"),
    ],
)
def test_invalid_arguments_are_refused_before_anything_is_measured(
    arguments, message, capsys, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
