"""The examples are what they say: checked, trained a few steps, intervened on."""

import json
import subprocess
import sys
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
