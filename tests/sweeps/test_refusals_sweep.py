"""Bad input of sweeps: one line, exit 2, nothing written."""

import subprocess
import sys

import pytest

from mecheval.cli import main

REFUSED = [
    (["sweep"], ["Missing command"]),
    (["sweep", "run"], ["RECIPE"]),
    (["sweep", "run", "figre3"], ["'figre3'", "did you mean 'figure3'"]),
    (["sweep", "run", "figure3", "--scale", "qick"], ["qick", "did you mean 'quick'"]),
    (["sweep", "run", "figure3", "--workers", "0"], ["workers=0", "from 1"]),
    (["sweep", "run", "figure3", "--workers", "many"], ["--workers"]),
    (["sweep", "run", "figure3", "--timeout", "0"], ["timeout=0", "above 0"]),
    (["sweep", "run", "figure3", "--timeout", "nan"], ["timeout=nan", "above 0"]),
    (["sweep", "run", "figure3", "--timeout", "soon"], ["--timeout"]),
    (["sweep", "run", "figure3", "--save-every", "-1"], ["save_every=-1", "from 0"]),
    (["sweep", "run", "figure3", "--shuffle", "-1"], ["shuffle=-1", "from 0"]),
    (["sweep", "run", "figure3", "--ray", "local", "--slurm"], ["--ray", "--slurm", "both"]),
    (["sweep", "run", "figure3", "--plugin", "nowhere.py"], ["nowhere.py"]),
    (["sweep", "run", "figure3", "here"], ["unexpected", "here"]),
    (["sweep", "status"], ["DIR"]),
    (["sweep", "retry"], ["DIR"]),
    (["sweep", "status", "nowhere"], ["'nowhere'", "a folder with runs"]),
    (["sweep", "retry", "nowhere"], ["'nowhere'", "a folder with runs"]),
    (["sweep", "status", "."], ["'.'", "the folder of a sweep"]),
    (["sweep", "retry", "."], ["'.'", "the folder of a sweep"]),
    (["list", "recipes", "mamba"], ["MODEL"]),
]


@pytest.mark.parametrize(("arguments", "named"), REFUSED, ids=lambda value: " ".join(value))
def test_it_is_refused_in_a_line_that_names_the_field(
    arguments, named, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert [word for word in named if word not in line] == []
    assert list(tmp_path.iterdir()) == []


def test_all_problems_are_reported_at_once(capsys):
    assert main(["sweep", "run", "figre3", "--scale", "qick", "--workers", "0"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_no_refusal_imports_torch_or_numba(tmp_path):
    code = f"""
import sys
from mecheval.cli import main
print({{main(words) for words, _ in {REFUSED}}}, {{"torch", "numba", "ray"}} & sys.modules.keys())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "{2} set()\n"
