"""Bad input: one clear line for each wrong field, exit 2, nothing written, nothing heavy imported."""

import subprocess
import sys

import pytest
import refusals

from mecheval.cli import main


def test_the_table_is_long():
    assert len({tuple(arguments) for arguments, _ in refusals.table()}) >= 200


@pytest.mark.parametrize(("arguments", "named"), refusals.table(), ids=lambda value: " ".join(value))
def test_it_is_refused_in_a_line_that_names_the_field(arguments, named, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("error: ")
    assert [word for word in named if word not in line] == []
    assert list(tmp_path.iterdir()) == []


def test_no_refusal_imports_torch_or_numba():
    done = subprocess.run([sys.executable, refusals.__file__], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[2] []"
    assert len(done.stderr.splitlines()) == len(refusals.table())


def test_every_wrong_field_is_reported_at_once(capsys):
    assert main(["sample", "recall:pairs=0,vocab=7,foo=1,queries=x", "-n", "0", "--split", "tset"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ", 1)[1].removeprefix("recall: ").split(" ")[0] for line in lines] == [
        "no",
        "pairs=0",
        "queries=x",
        "vocab=7",
        "n=0",
        "split=tset",
    ]
