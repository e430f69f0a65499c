"""Real workers: one that dies, hangs or is stopped costs one run; the same command resumes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from support.sweep_runs import alone, own_recipes, recipe_file, results  # noqa: F401, a fixture

from mecheval import plugins
from mecheval.results.plan import Plan
from mecheval.results.table import Results
from mecheval.runs.lock import in_use
from mecheval.sweeps import local
from mecheval.sweeps.options import SweepOptions
from mecheval.sweeps.planned import read_progress
from mecheval.sweeps.sweep import Sweep

THIRD_PARTY = """
import os, signal, time
from pathlib import Path
import torch
from mecheval.plugins import register_mixer

class ThirdParty(torch.nn.Module):
    "Does what its name says as soon as a worker looks at it."
    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(d_model, d_model)
    def forward(self, x):
        self.act()
        return self.linear(x)
    def act(self):
        pass

@register_mixer("dies_once")
class DiesOnce(ThirdParty):
    "Is killed, and then lives."
    def act(self):
        mark = Path(__file__).with_name("died")
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

@register_mixer("dies")
class Dies(ThirdParty):
    "Is always killed."
    def act(self):
        os.kill(os.getpid(), signal.SIGKILL)

@register_mixer("raises")
class Raises(ThirdParty):
    "Raises."
    def act(self):
        raise ArithmeticError("none of this adds up")

@register_mixer("sleeps")
class Sleeps(ThirdParty):
    "Never answers."
    def act(self):
        time.sleep(1000)

@recipe("sleepers")
def sleepers(scale):
    "One that never ends."
    yield Experiment.of({**FIELDS, "model.architecture": "sleeps"})

@recipe("third_party")
def third_party(scale):
    "One of each."
    for name in ("dies_once", "dies", "raises"):
        few = {"train.steps": 2, "eval.grid": "none"}
        yield Experiment.of({**FIELDS, **few, "model.architecture": name})
"""


pytestmark = pytest.mark.usefixtures("own_recipes")


def mecheval(*words, **how):
    return subprocess.Popen([sys.executable, "-m", "mecheval", *map(str, words)], text=True, **how)


def completed(*words):
    process = mecheval(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


def wait_for(what, seconds=300):
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


@pytest.mark.slow
def test_each_death_costs_one_run_and_is_reported(tmp_path):
    file = recipe_file(tmp_path, more=THIRD_PARTY)
    out = tmp_path / "out"
    words = [
        "sweep",
        "run",
        "third_party",
        "--plugin",
        file,
        "--out",
        out,
        "--workers",
        2,
        "--no-report",
        "--json",
    ]
    code, printed, errors = completed(*words)
    assert code == 1
    found = json.loads(printed)
    assert (found["recipe"], found["counts"]) == (
        "third_party",
        {"done": 1, "killed": 1, "error": 1},
    )
    reasons = {run["model.architecture"]: run["reason"] for run in found["runs"]}
    assert reasons["dies_once"] is None
    assert "SIGKILL" in reasons["dies"]
    assert "none of this adds up" in reasons["raises"]
    assert "2 of 3 runs failed" in errors.splitlines()[-1]
    # … and the folder says so, too
    kept = Plan.read(out).states(Results(out))
    assert [(run["status"], run["reason"]) for run in kept] == [
        (run["status"], run["reason"]) for run in found["runs"]
    ]


def one(tmp_path, recipe, **options):
    file = recipe_file(tmp_path, more=THIRD_PARTY)
    plugins.load_plugin(file)
    from mecheval.sweeps.recipe import get_experiments, get_scale

    how = SweepOptions(workers=1, plugins=(str(file),), **options)
    experiments = get_experiments(recipe, get_scale("quick"))[:1]
    return Sweep(experiments, tmp_path / "out", recipe, "quick", how)


@pytest.mark.slow
def test_a_run_that_takes_too_long_is_stopped(tmp_path):
    (run,) = one(tmp_path, "sleepers", timeout=10.0).execute(lambda: local.Local(1))
    assert (run.status, run.attempts, run.reason) == ("timeout", 1, "not finished after 10 seconds")
    (kept,) = Results(tmp_path / "out").runs()
    assert (kept["status"], kept["reason"]) == (run.status, run.reason)


def test_a_worker_that_does_not_stop_is_killed(tmp_path, monkeypatch):
    """A worker that is stopped by SIGSTOP receives no signal and no timeout."""
    monkeypatch.setattr(local, "GRACE_SECONDS", 0.1)
    process = local.Process()
    process.start(one(tmp_path, "mine", timeout=0.1).runs()[0])
    os.kill(process.pid, signal.SIGSTOP)
    outcome = wait_for(process.outcome)
    assert (outcome.status, "hung" in outcome.reason) == ("timeout", True)
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_a_worker_that_waits_for_a_run_ends_when_its_executor_stops():
    executor = local.Local(1)
    (ready,) = executor._ready
    assert executor.free == 1
    executor.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(ready.pid, 0)


@pytest.mark.slow
def test_a_worker_whose_launcher_ends_before_there_is_a_run_ends_silently():
    done = subprocess.run(
        [sys.executable, "-m", "mecheval.sweeps.worker"], input="", capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_after_the_launchers_end_the_same_command_ends_in_the_same_bytes(number, tmp_path):
    """No worker outlives a launcher that was killed: each saves and stops."""
    file, out = recipe_file(tmp_path, steps=200, width=96, batch=64), tmp_path / "out"
    words = ["sweep", "run", "mine", "--plugin", file, "--out", out, "--workers", 2]
    launcher = mecheval(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(
        lambda: (
            [told.get("steps", 0) > 0 for told in map(read_progress, out.glob("*.partial"))]
            == [True, True]
        )
    )
    launcher.send_signal(number)
    _, errors = launcher.communicate(timeout=120)
    if number == signal.SIGKILL:
        assert launcher.returncode == -number
        wait_for(lambda: not any(in_use(folder) for folder in out.glob("*.partial")), 60)
    else:
        assert launcher.returncode == 130
        last = errors.splitlines()[-1]
        assert last == (
            "stopped by SIGTERM: 0 of 2 runs are finished, the others are saved; "
            "rerun the same command to resume"
        )
    runs = Results(out).runs()
    assert [run["status"] for run in runs] == ["stopped", "stopped"]
    assert all(0 < run["steps"] < 200 for run in runs), (
        "a checkpoint was saved long before its time"
    )
    code, printed, errors = completed(*words)
    assert (code, "2 done" in printed) == (0, True), errors
    plugins.load_plugin(file)
    from mecheval.sweeps.recipe import get_experiments, get_scale

    assert results(out) == alone(get_experiments("mine", get_scale("quick")), tmp_path / "alone")
    assert list(out.glob("*.partial")) == []
