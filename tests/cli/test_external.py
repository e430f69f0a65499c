"""A third-party model is used on the command line by its file or by the name it registered."""

import json
from pathlib import Path

import pytest
from support.tiny_scale import TINY_FIELDS

from mecheval.cli import main
from mecheval.core.plugin_files import checksums
from mecheval.models.registries import models
from mecheval.plugins import load_plugin
from mecheval.runs.experiment import Experiment
from mecheval.runs.finished import Run
from mecheval.runs.hints import GIVE, hints
from mecheval.runs.provenance import made_by
from mecheval.sweeps.estimate import measure
from mecheval.sweeps.planned import PlannedRun
from mecheval.sweeps.worker import work

TASK = "recall:pairs=3,vocab=16"
MODEL = """
import torch
from torch import nn

import mecheval


@mecheval.register_model("mine")
class Mine(nn.Module):
    '''Each token and the mean of what came before.'''

    sites = {"blocks.0.block_in": "output of embedding", "blocks.0.mixer_out": "output of mean"}

    def __init__(
        self, vocab_size: int, d_model: int, layers: int, max_len: int, *, power: float = 1.0
    ) -> None:
        super().__init__()
        self.embedding, self.mean = nn.Embedding(vocab_size, d_model), nn.Identity()
        self.head = nn.Linear(d_model, vocab_size)
        self.power = power

    def forward(self, tokens):
        x = self.embedding(tokens)
        mean = x.cumsum(dim=1) / torch.arange(1, x.shape[1] + 1)[:, None] ** self.power
        return self.head(x + self.mean(mean))


class Nameless(Mine):
    sites = {"mean": "output of mean"}


class Ahead(Mine):
    def forward(self, tokens):
        logits = super().forward(tokens)
        return logits + logits.mean(dim=1, keepdim=True)


class Unbuilt(Mine):
    def __init__(self, vocab_size, d_model, layers, max_len):
        raise RuntimeError("out of luck")


class Sized(nn.Module):
    def __init__(self, vocab_size: int, width: int) -> None:
        super().__init__()


class mamba(Mine):
    pass
"""


@pytest.fixture
def file(tmp_path, monkeypatch, own_names):
    models.names()
    monkeypatch.setattr(models, "_targets", dict(models._targets))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MODEL)
    return "mine.py"


def answered(capsys, *words):
    assert main([*map(str, words), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def refused(capsys, code, *words):
    assert main([*map(str, words)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert not Path("runs").exists(), "nothing was written"
    return captured.err.splitlines()


def test_by_its_file_or_by_its_name_it_is_the_same_model(file, capsys):
    by_file = answered(capsys, "run", TASK, "mine.py:Mine:power=0.5", *TINY_FIELDS)
    by_name = answered(capsys, "run", TASK, "mine:power=0.5", *TINY_FIELDS, "--plugin", file)
    assert by_file["metrics"] == by_name["metrics"]
    assert by_file["verdict"] == by_name["verdict"]
    assert by_file["verdict"]["mechanism"] == "unsolved"
    assert "recall-Mine-" in by_file["folder"]
    assert {run["model.architecture"] for run in answered(capsys, "runs", "runs")} == {
        "Mine:power=0.5",
        "mine:power=0.5",
    }
    for found, plugin in ((by_file, "mine.py:Mine"), (by_name, file)):
        grid = answered(capsys, "intervene", found["folder"], "--plugin", plugin, "--documents", 8)
        assert {row["site"] for row in grid["rows"]} == {
            None,
            "blocks.0.block_in",
            "blocks.0.mixer_out",
        }
        assert grid["verdict"]["mechanism"] == "unsolved"


def hint_of(capsys, folder):
    assert main(["intervene", folder]) == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_a_run_opened_without_its_file_says_which_plugin_to_give(file, capsys, monkeypatch):
    folders = []
    for words in (["mine.py:Mine:power=0.5"], ["mine:power=0.5", "--plugin", file]):
        folders.append(answered(capsys, "run", TASK, *words, *TINY_FIELDS)["folder"])
    monkeypatch.setattr(models, "_targets", {})
    path = Path(file).resolve()
    for folder, plugin in zip(folders, (f"{path}:Mine", path), strict=True):
        assert str(path) not in str(Run(Path(folder)).provenance["made_by"])
        hint = hint_of(capsys, folder)
        assert hint.endswith(
            f"is in a file that is unchanged since the run; give --plugin {plugin}"
        )
    assert not models._targets, "nothing was run"
    path.write_text(path.read_text() + "\n")
    assert "changed since the run: numbers may differ" in hint_of(capsys, folder)
    path.unlink()
    hint = hint_of(capsys, folder)
    assert hint.endswith(f"mine was in {path}, which is not there; {GIVE} with its new path")


def test_a_run_without_a_recorded_path_names_the_files_it_was_made_with():
    old = {"made_by": {"plugins": {"mine.py": "0" * 64, "Shift": "1" * 64}}}
    assert list(hints(old, "no architecture named 'mine'")) == [
        f"the run was made with mine.py; {GIVE}"
    ]
    assert not list(hints({"made_by": {}}, "no architecture named 'mine'"))


def test_a_verdict_that_cannot_be_given_is_one_line_and_the_grid_is_there(file, capsys):
    found = answered(capsys, "run", TASK, "mine.py:Nameless", *TINY_FIELDS)
    assert found["verdict"] is None
    asked = ["intervene", found["folder"], "--plugin", "mine.py:Nameless", "--documents", 8]
    grid = answered(capsys, *asked)
    reason = "a verdict needs sites named blocks.1.block_in, …; the model has none"
    assert (grid["verdict"], grid["no_verdict"]) == (None, reason)
    assert main([str(word) for word in asked]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.endswith(f"no verdict: {reason}")
    assert "mean" in out


def test_its_sites_cost_and_options_are_shown(file, capsys):
    listed = answered(capsys, "show", "sites", "mine.py:Mine")
    assert listed[1] == {
        "name": "blocks.0.mixer_out",
        "shape": ["batch", "time", "16"],
        "summary": "output of mean",
    }
    costs = answered(capsys, "show", "model", "mine.py:Mine", "--d-model", 8)
    assert costs["parameters"] == 8195 * 8 + 8195 * 9
    assert costs["parameters"] - costs["parameters_without_embedding"] == 8195 * 8
    listed = answered(capsys, "list", "architectures", "--plugin", file)
    entries = {entry["name"]: entry for entry in listed}
    assert entries["mine"]["summary"] == "Each token and the mean of what came before."
    assert [option["name"] for option in entries["mine"]["options"]] == ["power"]
    assert answered(capsys, "check", "mine:power=2.0", "--plugin", file) == {
        "name": "mine:power=2.0",
        "failures": [],
    }


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ("mine.py:Ahead", "error: Ahead: must not see the future"),
        ("mine.py:Unbuilt", "error: Unbuilt cannot be built: RuntimeError: out of luck"),
        (
            "mine.py:Mine:power=x",
            "error: model.architecture=Mine:power=x: Mine: power=x must be a number",
        ),
        (
            "mine.py:Sized",
            "it must be built with (vocab_size, d_model, layers, max_len, **options)",
        ),
        ("mine.py:mamba", "name='mamba' is taken by another architecture; rename yours"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_written(model, line, file, capsys):
    errors = refused(capsys, 2, "run", TASK, model, *TINY_FIELDS)
    assert any(line in error for error in errors), errors


def test_check_says_what_is_wrong_with_it(file, capsys):
    assert "must not see the future" in refused(capsys, 1, "check", "mine.py:Ahead")[0]


def test_a_sweeps_worker_and_its_estimate_know_it(file, tmp_path, monkeypatch):
    load_plugin(file)
    experiment = Experiment.of(
        {
            "task": TASK,
            "model.architecture": "mine",
            "model.d_model": 8,
            "train.steps": 2,
            "eval.documents": 8,
        }
    )
    cost = measure(experiment)
    assert min(cost.step, cost.evaluated, cost.intervened) > 0
    made = made_by("cpu", 1, checksums())
    out, files = str(tmp_path / "out"), (str(tmp_path / file),)
    planned = PlannedRun(experiment.record(), experiment.name, out, made, plugins=files)
    assert work(planned).status == "done"
