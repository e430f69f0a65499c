"""What the documentation shows works as it is shown."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mecheval.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def test_the_ten_lines_of_the_readme_run(tmp_path):
    (code,) = blocks(ROOT / "README.md", "python")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.startswith("induction 1.0 ")


def test_the_example_with_documents_runs():
    (code,) = blocks(ROOT / "docs" / "tasks.md", "python")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "of the corruptions took the answer away" in done.stdout


def test_the_example_with_models_runs():
    (code,) = blocks(ROOT / "docs" / "models.md", "python")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "blocks.1.mixer.conv_out" in done.stdout


def test_the_examples_of_training_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "training.md"
    (shell,) = blocks(page, "sh")
    for line in shell.splitlines():
        assert main(shlex.split(line)[1:]) == 0, capsys.readouterr().err
    (toml,) = blocks(page, "toml")
    (tmp_path / "experiment.toml").write_text(toml)
    assert main(["run", "--file", "experiment.toml", "train.lr=3e-3"]) == 0, capsys.readouterr().err
    (code,) = blocks(page, "python")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("done {'value'")


@pytest.mark.parametrize(("block", "last"), [(0, "unsolved"), (1, "64 torch.Size([64, 19, 1, 32, 32])")])
def test_the_examples_of_interventions_run(block, last, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = blocks(ROOT / "docs" / "interventions.md", "python")[block]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == last


def test_the_example_plugin_is_a_task(tmp_path, monkeypatch, capsys, own_names):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks(ROOT / "docs" / "plugins.md", "python")
    (tmp_path / "last.py").write_text(code)
    (shell,) = blocks(ROOT / "docs" / "plugins.md", "sh")
    commands = [shlex.split(line, comments=True) for line in shell.splitlines()]
    assert len(commands) == 3
    for command in commands:
        assert command[0] == "mecheval"
        assert main(command[1:]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_that_are_named_exist(page):
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for target in re.findall(r"(?:^|`)make (\w+)", page.read_text(), flags=re.MULTILINE):
        assert target in targets
