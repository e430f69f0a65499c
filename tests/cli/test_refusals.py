"""Invalid input gets one clear line for each field and exit code 2; nothing is written."""

import shutil
import subprocess
import sys

import pytest
from support import refusals as refusals
from support.fault_injection import flip, small

from mecheval.cli import main


def assert_one_line_names(capsys, named):
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("error: ")
    assert [word for word in named if word not in line] == []


@pytest.mark.parametrize(("arguments", "named"), refusals.table(), ids=" ".join)
def test_a_refusal_names_the_field(arguments, named, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert_one_line_names(capsys, named)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_no_refusal_imports_torch_or_numba():
    script = [sys.executable, refusals.__file__]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[2] []"
    assert len(done.stderr.splitlines()) == len(refusals.table())


def test_every_wrong_field_is_reported_at_once(capsys):
    task = "recall:pairs=0,vocab=7,foo=1,queries=x"
    assert main(["sample", task, "-n", "0", "--split", "tset"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ", 1)[1].removeprefix("recall: ").split(" ")[0] for line in lines] == [
        "no",
        "pairs=0",
        "queries=x",
        "vocab=7",
        "n=0",
        "split=tset",
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    from mecheval.runs.run import run

    place = tmp_path_factory.mktemp("runs")
    found = {"attention": run(small(train_steps=2), place).folder}
    found["diverged"] = run(small(train_lr=1e9, train_warmup=0.0), place).folder
    found["damaged"] = shutil.copytree(found["attention"], place / "damaged")
    weights = found["damaged"] / "weights.safetensors"
    weights.write_bytes(flip(weights.read_bytes(), 500))
    found["empty"] = place / "empty"
    found["empty"].mkdir()
    return found


@pytest.mark.parametrize(("which", "asked", "code", "named"), refusals.OF_RUNS, ids=str)
def test_an_intervention_that_a_run_cannot_have_is_refused_in_a_line(
    which, asked, code, named, runs, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in runs[which].parent.rglob("*")}
    for form in ([], ["--json"], ["--document", "1"] if "--role" not in asked else []):
        assert main(["intervene", str(runs[which]), *asked, *form]) == code
        assert_one_line_names(capsys, named)
    assert list(tmp_path.iterdir()) == []
    assert {path: path.stat().st_mtime_ns for path in runs[which].parent.rglob("*")} == before
