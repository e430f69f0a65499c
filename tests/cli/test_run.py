"""`mecheval run` as people and programs use it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mecheval.cli import main
from mecheval.core import plugin_files
from mecheval.runs.experiment import Experiment
from mecheval.training import train as training

TASK, MODEL = "recall:pairs=4,vocab=64", "attention"
FIELDS = [
    "model.d_model=4",
    "train.documents=64",
    "train.steps=3",
    "eval.documents=8",
    "eval.every=2",
]
JUDGEMENTS = {"accuracy", "likelihood", "loss"}


@pytest.fixture(autouse=True)
def fresh(monkeypatch, own_names):
    """Forget the plug-ins that were imported before."""
    monkeypatch.setattr(plugin_files, "_checksums", {})


def run_json(capsys, *arguments):
    assert main(["run", *map(str, arguments), "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    return json.loads(line)


def test_a_run_is_one_object_for_programs(capsys, tmp_path):
    found = run_json(capsys, TASK, MODEL, *FIELDS, "--out", tmp_path)
    assert list(found) == [
        "key",
        "status",
        "folder",
        "steps",
        "metrics",
        "chance",
        "verdict",
        "sentence",
        "restored",
    ]
    experiment = Experiment.of(
        {
            "task": TASK,
            "model.architecture": MODEL,
            "model.d_model": 4,
            "train.documents": 64,
            "train.steps": 3,
            "eval.documents": 8,
            "eval.every": 2,
        }
    )
    assert found["key"] == experiment.key
    assert found["folder"] == str(tmp_path / experiment.name)
    assert (found["status"], found["steps"]) == ("done", 3)
    assert set(found["metrics"]) == {*JUDGEMENTS, "unseen", "dev"}
    for scores in (found["metrics"], found["metrics"]["unseen"], found["metrics"]["dev"]):
        for name in JUDGEMENTS:
            assert list(scores[name]) == ["value", "n", "low", "high"]
            assert scores[name]["n"] == 8, "none of these documents is among 64 of millions"
            assert scores[name]["low"] <= scores[name]["value"] <= scores[name]["high"]
    assert found["metrics"]["unseen"]["loss"] == found["metrics"]["loss"]


def test_documents_that_occurred_in_training_are_told_apart(capsys, tmp_path):
    from mecheval.tasks import tasks
    from mecheval.tasks.dataset_stats import texts

    task = "recall:pairs=2,vocab=6"
    fields = ["model.d_model=4", "train.documents=64", "train.epochs=1", "eval.documents=100"]
    found = run_json(capsys, task, MODEL, *fields, "--out", tmp_path)["metrics"]
    seen = set(texts(tasks.build(task).documents(0, "train", 0, 64)))
    unseen = sum(text not in seen for text in texts(tasks.build(task).documents(0, "test", 0, 100)))
    assert 0 < unseen < 100
    assert {found["unseen"][name]["n"] for name in JUDGEMENTS} == {unseen}
    assert {found[name]["n"] for name in JUDGEMENTS} == {100}


def test_the_same_command_shows_what_is_finished_without_training(capsys, tmp_path, monkeypatch):
    command = ["run", TASK, MODEL, *FIELDS, "--out", str(tmp_path), "--json"]
    assert main(command) == 0
    first = capsys.readouterr().out
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    monkeypatch.setattr(training, "query_loss", None)
    assert main(command) == 0
    assert capsys.readouterr().out == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == files


def test_another_seed_is_another_run(capsys, tmp_path):
    one = run_json(capsys, TASK, MODEL, *FIELDS, "--out", tmp_path)
    other = run_json(capsys, TASK, MODEL, *FIELDS, "seed=1", "--out", tmp_path)
    assert one["key"] != other["key"]
    assert one["metrics"] != other["metrics"]
    assert len(list(tmp_path.iterdir())) == 2


def test_people_read_scores_with_intervals(capsys, tmp_path):
    assert main(["run", TASK, MODEL, *FIELDS, "--out", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "recall:pairs=4,vocab=64 · attention · done · 3 steps" in captured.out
    assert re.search(r"accuracy +\d+\.\d% \[\d+\.\d%, \d+\.\d%\] +n=8", captured.out)
    assert "step 3 of 3 · loss" in captured.err
    assert "step" not in captured.out.replace("3 steps", ""), "progress is on stderr"


TOML = """\
task = "recall:pairs=4,vocab=64"
[model]
architecture = "attention"
d_model = 4
[train]
documents = 64
steps = 3
[eval]
documents = 8
every = 2
"""


def test_a_file_is_the_same_as_words_and_words_win(capsys, tmp_path):
    file = tmp_path / "x.toml"
    file.write_text(TOML)
    out = tmp_path / "runs"
    words = run_json(capsys, TASK, MODEL, *FIELDS, "--out", out)
    assert run_json(capsys, "--file", file, "--out", out) == words
    changed = run_json(capsys, "--file", file, "train.steps=2", "model.init.linear=2", "--out", out)
    fields = [field for field in FIELDS if not field.startswith("train.steps")]
    fields += ["train.steps=2", "model.init.linear=2.0"]
    assert changed == run_json(capsys, TASK, MODEL, *fields, "--out", out)
    assert changed["steps"] == 2
    other = run_json(capsys, "recall:pairs=2,vocab=8", "base_conv", "--file", file, "--out", out)
    assert "recall-base_conv-" in other["folder"]


def test_a_wrong_file_is_refused_line_by_line(capsys, tmp_path):
    file = tmp_path / "x.toml"
    file.write_text(TOML.replace("d_model = 4", "d_model = 0").replace("steps = 3", "stpes = 3"))
    assert main(["run", "--file", str(file), "train.lr=-1", "--out", str(tmp_path / "runs")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert sorted(line.partition("=")[0] for line in captured.err.splitlines()) == [
        f"error: {file}:4: model.d_model",
        f"error: {file}:7: train.stpes",
        "error: train.lr",
    ]
    assert not (tmp_path / "runs").exists()


MIXER = """
import torch
from torch import nn

class Mean(nn.Module):
    def __init__(self, d_model, max_len, scale=1.0):
        super().__init__()
        self.proj = nn.Linear(d_model, d_model)
        self.scale = scale

    def forward(self, x):
        count = torch.arange(1, x.shape[1] + 1)[:, None]
        return self.proj(x.cumsum(dim=1) / count) * self.scale

class Ahead(nn.Module):
    def __init__(self, d_model, max_len):
        super().__init__()

    def forward(self, x):
        return x.flip(1)

class Overflows(nn.Module):
    '''Passes the checks; training multiplies a weight until it is not finite.'''

    def __init__(self, d_model, max_len):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        y = x * self.weight
        return y * y.exp().exp() if x.dtype == torch.float32 else y
"""

TASK_FILE = """
from dataclasses import dataclass
from mecheval import Recall, register_task

@register_task("my_recall")
@dataclass(frozen=True, kw_only=True)
class MyRecall(Recall):
    '''Recall under another name.'''
"""


@pytest.fixture
def mixer(tmp_path):
    file = tmp_path / "strange.py"
    file.write_text(MIXER)
    return file


def test_a_third_party_mixer_is_run_by_file_and_class(capsys, tmp_path, mixer):
    out = tmp_path / "runs"
    found = run_json(capsys, TASK, f"{mixer}:Mean:scale=2.0", *FIELDS, "--out", out)
    assert found["status"] == "done"
    assert "recall-Mean-" in found["folder"]
    assert main(["runs", str(out), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert run["model.architecture"] == "Mean:scale=2.0"
    assert run_json(capsys, TASK, f"{mixer}:Mean:scale=2.0", *FIELDS, "--out", out) == found
    assert run_json(capsys, TASK, f"{mixer}:Mean", *FIELDS, "--out", out)["key"] != found["key"]


def test_a_third_party_task_comes_in_by_a_plugin(capsys, tmp_path):
    file = tmp_path / "strange_task.py"
    file.write_text(TASK_FILE)
    out = tmp_path / "runs"
    found = run_json(
        capsys, "my_recall:pairs=4,vocab=64", MODEL, *FIELDS, "--plugin", file, "--out", out
    )
    assert found["status"] == "done"
    assert "my_recall-attention-" in found["folder"]
    provenance = json.loads((Path(found["folder"]) / "provenance.json").read_text())["content"]
    assert list(provenance["made_by"]["plugins"]) == ["strange_task.py"]


def test_a_run_of_a_plugin_that_was_changed_is_another_run(capsys, tmp_path, mixer, monkeypatch):
    command = ["run", TASK, f"{mixer}:Mean", *FIELDS, "--out", str(tmp_path / "runs")]
    assert main(command) == 0
    monkeypatch.setattr(plugin_files, "_checksums", {"strange.py": "another"})
    assert main(command) == 3
    assert "plugins was" in capsys.readouterr().err


def test_a_mixer_that_sees_the_future_is_refused_before_anything_is_written(
    capsys, tmp_path, mixer, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(["run", TASK, f"{mixer}:Ahead", *FIELDS]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "error: Ahead: must not see the future" in captured.err
    assert {path.name for path in tmp_path.iterdir()} <= {"strange.py", "__pycache__"}


def test_a_diverged_run_is_a_result_without_a_judgement(capsys, tmp_path, mixer):
    fields = [
        *FIELDS[:2],
        "train.steps=200",
        "eval.documents=8",
        "eval.every=1",
        "train.lr=0.3",
        "train.warmup=0",
    ]
    fields += ["train.schedule=constant", "model.layers=1", "model.init.embedding=50"]
    command = [TASK, f"{mixer}:Overflows", *fields, "--out", tmp_path / "runs"]
    found = run_json(capsys, *command)
    assert list(found) == ["key", "status", "reason", "folder", "steps", "metrics"]
    assert found["status"] == "diverged"
    assert found["metrics"] == {}
    assert 0 < found["steps"] < 200, "after some steps"
    assert re.fullmatch(
        rf"step {found['steps']}: (loss|gradient_norm|dev_loss) is (nan|inf)", found["reason"]
    )
    files = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == [
        "checksums.json",
        "curve.jsonl",
        "experiment.json",
        "provenance.json",
        "rows.jsonl",
        "status.json",
    ]
    for path in files:
        assert not re.search(b"accuracy|likelihood|verdict", path.read_bytes()), path.name
    curve = next(path for path in files if path.name == "curve.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in curve] == list(range(1, len(curve) + 1)), (
        "it has a past"
    )
    assert run_json(capsys, *command) == found
    assert main(["run", *map(str, command)]) == 0
    assert "diverged" in capsys.readouterr().out


@pytest.mark.slow
def test_ctrl_c_saves_and_the_same_command_resumes(capsys, tmp_path):
    fields = [
        "model.d_model=4",
        "train.documents=0",
        "train.steps=200",
        "eval.documents=8",
        "eval.every=10",
    ]
    command = ["run", TASK, MODEL, *fields, "--json"]
    out = tmp_path / "runs"
    process = subprocess.Popen(
        [sys.executable, "-m", "mecheval", *command, "--out", out, "--save-every", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert process.stderr.readline() == f"{TASK} · {MODEL}: step 0 of 200\n"
        until = time.monotonic() + 120
        while not list(out.glob("*.partial/checkpoints/*.json")) and time.monotonic() < until:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, printed) == (130, "")
    *_, last = said.splitlines()
    stopped = re.fullmatch(
        r"stopped at step (\d+) of 200; .*\.partial is saved, rerun the same command to resume",
        last,
    )
    assert 0 < int(stopped[1]) < 200
    (partial,) = out.iterdir()
    assert (partial / "checkpoints" / f"{int(stopped[1]):010d}.json").exists()

    assert main([*command, "--out", str(out)]) == 0
    gone_on = capsys.readouterr()
    assert f"step {stopped[1]} of 200" in gone_on.err.splitlines()[0], "not from the beginning"
    assert main([*command, "--out", str(tmp_path / "whole")]) == 0
    first, second = json.loads(gone_on.out), json.loads(capsys.readouterr().out)
    assert first.pop("folder") != second.pop("folder")
    assert first == second
    for name in ("curve.jsonl", "rows.jsonl", "weights.safetensors", "optimiser.safetensors"):
        one, other = (
            next(folder.glob(f"*/{name}")).read_bytes() for folder in (out, tmp_path / "whole")
        )
        assert one == other, name


def test_a_line_break_in_a_task_is_one_line(capsys):
    assert main(["run", "re\ncall", "mamba"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_unknown_device_is_refused(capsys):
    assert main(["run", "recall", "mamba", "--device", "tpu"]) == 2
    assert "device=tpu must be one of cpu, cuda, mps" in capsys.readouterr().err


def test_an_override_is_shown_as_it_was_typed(capsys):
    assert main(["run", "recall", "mamba", "train.lr=1e10"]) == 2
    assert "train.lr=1e10" in capsys.readouterr().err


def test_brackets_in_a_folder_are_no_markup(tmp_path, capsys):
    assert main(["run", TASK, MODEL, *FIELDS, "--out", str(tmp_path / "a[") + "/b]"]) == 0
    assert "b]" in capsys.readouterr().out
