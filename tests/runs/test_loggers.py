"""Loggers get each line of the curve once, and a logger that fails does not fail the run."""

import importlib.machinery
import logging
import os
import signal
import sys
from types import ModuleType, SimpleNamespace

import pytest

from mecheval.core.errors import Interrupted, InvalidInput
from mecheval.runs.experiment import Experiment
from mecheval.runs.loggers import Guarded, logger, loggers, register_logger
from mecheval.runs.run import run

COLUMNS = {"loss", "accuracy", "likelihood", "train_loss", "gradient_norm", "learning_rate"}


@pytest.fixture
def experiment():
    return Experiment.of(
        {
            "task": "recall:pairs=2,vocab=8",
            "model.architecture": "attention",
            "model.d_model": 4,
            "train.documents": 64,
            "train.steps": 5,
            "eval.every": 2,
            "eval.documents": 8,
        }
    )


class Failing:
    """Raises in one of the three methods, and counts how often each is called."""

    def __init__(self, method):
        self.method, self.calls = method, []

    def _called(self, name):
        self.calls.append(name)
        if name == self.method:
            raise OSError("no network")

    def start(self, experiment, step):
        self._called("start")

    def log(self, step, loss, row):
        self._called("log")

    def finish(self, status):
        self._called("finish")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "calls"),
    [
        ("start", ["start"]),
        ("log", ["start", "log"]),
        ("finish", ["start", *["log"] * 5, "finish"]),
    ],
)
def test_a_logger_that_fails_is_left_out_and_said_once(method, calls, experiment, tmp_path, caplog):
    failing, fine = Failing(method), Failing(None)
    with caplog.at_level(logging.WARNING, "mecheval"):
        watchers = [Guarded("theirs", failing), Guarded("ours", fine)]
        found = run(experiment, tmp_path, watchers=watchers)
    assert found.status == "done"
    assert failing.calls == calls
    assert fine.calls == ["start", *["log"] * 5, "finish"]
    (said,) = caplog.messages
    assert "theirs" in said
    assert "OSError: no network" in said


def test_a_logger_changes_no_bit(experiment, tmp_path):
    alone = run(experiment, tmp_path / "alone")
    watched = run(experiment, tmp_path / "watched", watchers=[Guarded("theirs", Failing("log"))])
    for name in ("curve.jsonl", "rows.jsonl", "weights.safetensors", "optimiser.safetensors"):
        assert (alone.folder / name).read_bytes() == (watched.folder / name).read_bytes()


@pytest.fixture
def wandb(monkeypatch):
    """A package that stores what is logged."""
    fake = ModuleType("wandb")
    fake.__spec__ = importlib.machinery.ModuleSpec("wandb", None)
    fake.runs = []

    def init(**arguments):
        made = SimpleNamespace(arguments=arguments, logged=[], summary={}, finished=0)
        made.log = lambda row, step: made.logged.append((step, row))
        made.finish = lambda: setattr(made, "finished", made.finished + 1)
        fake.runs.append(made)
        return made

    fake.init = init
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def test_wandb_gets_each_line_of_the_curve_once(experiment, tmp_path, wandb):
    found = run(experiment, tmp_path, watchers=[logger("wandb")])
    (made,) = wandb.runs
    assert made.logged == [(row["step"], row) for row in found.curve]
    assert [step for step, _ in made.logged] == [2, 4, 5]
    assert made.arguments["config"] == experiment.fields()
    assert experiment.key.startswith(made.arguments["id"])
    assert made.summary == {"status": "done"}
    assert made.finished == 1


class Stops:
    """Presses Ctrl-C after a step."""

    def __init__(self, step):
        self.step = step

    def start(self, experiment, step):
        pass

    def log(self, step, loss, row):
        if step == self.step:
            os.kill(os.getpid(), signal.SIGINT)

    def finish(self, status):
        pass


def test_a_resumed_run_is_one_wandb_run_and_no_line_is_logged_twice(experiment, tmp_path, wandb):
    with pytest.raises(Interrupted):
        run(experiment, tmp_path, watchers=[logger("wandb"), Stops(4)])
    found = run(experiment, tmp_path, watchers=[logger("wandb")])
    first, second = wandb.runs
    assert first.arguments["id"] == second.arguments["id"]
    assert second.arguments["resume"] == "allow"
    assert first.logged + second.logged == [(row["step"], row) for row in found.curve]
    assert (first.summary, second.summary) == ({"status": "not finished"}, {"status": "done"})


def test_a_finished_run_is_not_logged_again(experiment, tmp_path, wandb):
    run(experiment, tmp_path)
    run(experiment, tmp_path, watchers=[logger("wandb")])
    assert wandb.runs == []


def test_tensorboard_has_each_line_of_the_curve_once(experiment, tmp_path, monkeypatch, caplog):
    pytest.importorskip("tensorboard", reason="an extra: pip install 'mecheval[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.chdir(tmp_path)
    found = run(experiment, tmp_path / "runs", watchers=[logger("tensorboard")])
    assert caplog.messages == []
    events = EventAccumulator(str(tmp_path / "tensorboard" / experiment.name)).Reload()
    assert set(events.Tags()["scalars"]) == COLUMNS
    for name in COLUMNS:
        told = [(event.step, event.value) for event in events.Scalars(name)]
        assert told == [(row["step"], pytest.approx(row[name], rel=1e-6)) for row in found.curve]


@pytest.mark.parametrize("name", ["wnadb", "", "tensorbord"])
def test_an_unknown_logger_is_refused(name):
    with pytest.raises(InvalidInput, match=f"no logger named '{name}'.*known: tensorboard, wandb"):
        logger(name)


@pytest.mark.parametrize("name", ["wandb", "tensorboard"])
def test_a_logger_whose_package_is_not_installed_is_refused(name, monkeypatch):
    monkeypatch.setattr("mecheval.runs.loggers.find_spec", lambda name: None)
    message = rf"log={name} needs the package {name}: pip install 'mecheval\[{name}\]'"
    with pytest.raises(InvalidInput, match=message):
        logger(name)


def test_a_third_party_logger_is_registered_by_name(experiment, tmp_path, own_names):
    calls = []

    @register_logger("mine")
    class Mine(Failing):
        def __init__(self):
            super().__init__(None)
            self.calls = calls

    run(experiment, tmp_path, watchers=[logger("mine")])
    assert calls == ["start", *["log"] * 5, "finish"]
    assert loggers.names() == ["wandb", "tensorboard", "mine"]
