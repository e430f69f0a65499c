"""A run is a pure function of its experiment: the same bytes, however often it is stopped."""

import errno
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
import torch
from support.fault_injection import Disk, Reaper, Stopped, broken, error_at, result, small
from torch import nn

from mecheval.cli import main
from mecheval.core.errors import Interrupted, InvalidInput, RunFailed, StoreError
from mecheval.models.registries import mixers
from mecheval.results.table import Results
from mecheval.runs import run as runner
from mecheval.runs.experiment import Settings
from mecheval.runs.run import run

STEPS = 7
OFTEN = Settings(save_every=0.0)
EXPERIMENTS = {
    "epochs": small(train_steps=STEPS, eval_every=3, train_documents=12, eval_documents=32),
    "fresh documents": small(
        train_steps=STEPS, eval_every=3, train_documents=0, architecture="mamba"
    ),
    "stops when solved": small(
        train_steps=STEPS, eval_every=2, train_stop=0.01, eval_documents=256
    ),
    "grids on the way": small(
        train_steps=STEPS, eval_every=2, eval_grid_every=2, eval_grid_split="both"
    ),
    "many queries": small(
        "recall:pairs=3,vocab=16,queries=2", "hyena", train_steps=STEPS, eval_every=4
    ),
}


def command(experiment):
    named = ("task", "model.architecture")
    fields = [f"{name}={value}" for name, value in experiment.fields().items() if name not in named]
    return ["run", experiment.task_spec, experiment.model.architecture, *fields]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return the results of runs that were not stopped."""
    room = tmp_path_factory.mktemp("alone")
    return {name: result(run(experiment, room).folder) for name, experiment in EXPERIMENTS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_stopped_after_any_step_it_ends_in_the_same_bytes(name, alone, tmp_path):
    experiment, last = EXPERIMENTS[name], json.loads(alone[name]["status.json"])["content"]["steps"]
    for step in range(1, last + 1):
        out = tmp_path / str(step)
        with pytest.raises(Stopped):
            run(experiment, out, OFTEN, [Reaper(step)])
        watcher = Reaper()
        assert result(run(experiment, out, OFTEN, [watcher]).folder) == alone[name]
        assert watcher.began == step - 1


def test_stopped_after_every_step_it_ends_in_the_same_bytes(alone, tmp_path):
    experiment = EXPERIMENTS["epochs"]
    for step in range(2, STEPS + 1):
        with pytest.raises(Stopped):
            run(experiment, tmp_path, OFTEN, [Reaper(step)])
    found = run(experiment, tmp_path, OFTEN)
    assert result(found.folder) == alone["epochs"]
    assert found.provenance["sessions"] == STEPS


@pytest.mark.slow
def test_grids_on_the_way_are_on_dev_at_every_so_many_evaluations_and_none_is_there_twice(tmp_path):
    def places(**asked):
        rows = run(small(train_steps=STEPS, eval_every=2, **asked), tmp_path).rows
        restored = [
            row for row in rows if row.condition == "restored" and row.metric == "likelihood"
        ]
        cells = [(row.split, row.step, row.site, row.role) for row in restored]
        assert len(cells) == len(set(cells))
        return {cell[:2] for cell in cells}

    # evaluations are at 2, 4, 6 and, the last step, 7
    assert places() == {("test", 7)}
    assert places(eval_grid_every=1) == {
        ("dev", 2),
        ("dev", 4),
        ("dev", 6),
        ("dev", 7),
        ("test", 7),
    }
    assert places(eval_grid_every=2) == {("dev", 4), ("dev", 7), ("test", 7)}
    assert places(eval_grid_every=2, eval_grid_split="both") == {
        ("dev", 4),
        ("dev", 7),
        ("test", 7),
    }
    assert places(eval_grid_every=3, eval_grid_split="dev") == {("dev", 6), ("dev", 7)}
    assert places(eval_grid_every=1, eval_grid="none") == set()


def test_how_often_it_is_saved_changes_nothing(alone, tmp_path):
    for seconds in (0.0, 0.01, 1e9):
        found = run(EXPERIMENTS["epochs"], tmp_path / str(seconds), Settings(save_every=seconds))
        assert result(found.folder) == alone["epochs"]


def test_what_the_caller_did_to_torch_before_changes_nothing(alone, tmp_path):
    torch.manual_seed(123)
    torch.rand(7)
    with torch.random.fork_rng():
        assert result(run(EXPERIMENTS["epochs"], tmp_path).folder) == alone["epochs"]


def test_another_seed_gives_other_bytes(alone, tmp_path):
    other = small(train_steps=STEPS, eval_every=3, train_documents=12, eval_documents=32, seed=1)
    found = result(run(other, tmp_path).folder)
    assert [name for name in found if found[name] == alone["epochs"][name]] == []


@pytest.mark.slow
def test_two_processes_write_the_same_bytes_and_their_provenance_says_where(alone, tmp_path):
    experiment = EXPERIMENTS["epochs"]
    python = [sys.executable, "-m", "mecheval", *command(experiment), "--json", "--out"]
    for name in ("a", "b"):
        done = subprocess.run(
            [*python, tmp_path / name], capture_output=True, text=True, check=True
        )
        summary = json.loads(done.stdout)
        assert (summary["key"], summary["status"], summary["steps"]) == (
            experiment.key,
            "done",
            STEPS,
        )
        assert {"loss", "accuracy", "likelihood", "unseen"} <= summary["metrics"].keys()
    a, b = (tmp_path / name / experiment.name for name in ("a", "b"))
    assert result(a) == result(b) == alone["epochs"]
    provenance = json.loads((a / "provenance.json").read_text())["content"]
    assert {"mecheval", "torch", "numpy", "device", "threads"} <= provenance["made_by"].keys()
    assert {
        "commit",
        "python",
        "system",
        "processor",
        "cores",
        "started",
        "finished",
    } <= provenance.keys()
    assert provenance["peak_memory_bytes"] > 2**20
    assert provenance["cpu_seconds"] > 0
    assert provenance["wall_seconds"] > 0
    assert provenance["sessions"] == 1


class Knock(Reaper):
    """Sends this process a signal after a step."""

    def __init__(self, step, number):
        super().__init__(step)
        self.number, self.steps = number, []

    def log(self, step, loss, row):
        self.steps.append(step)
        if step == self.step:
            os.kill(os.getpid(), self.number)

    def finish(self, status):
        self.ended = status


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGHUP, 129)]
)
def test_a_stop_signal_saves_the_run_which_can_be_resumed(number, code, alone, tmp_path):
    experiment, watcher = EXPERIMENTS["epochs"], Knock(4, number)
    before = signal.signal(number, signal.default_int_handler)  # the tests may run under nohup
    try:
        with pytest.raises(Interrupted, match=f"at step 4 of {STEPS}; .* is saved") as stopped:
            run(experiment, tmp_path, watchers=[watcher])
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)
    assert stopped.value.exit_code == code
    assert (watcher.steps, watcher.ended) == ([1, 2, 3, 4], "not finished")
    assert [row["status"] for row in Results(tmp_path).runs()] == ["stopped"]
    watcher = Reaper()
    assert result(run(experiment, tmp_path, watchers=[watcher]).folder) == alone["epochs"]
    assert watcher.began == 4


def test_a_closed_terminal_is_ignored_where_it_was_ignored_at_the_start(alone, tmp_path):
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        finished = run(EXPERIMENTS["epochs"], tmp_path, watchers=[Knock(4, signal.SIGHUP)])
    finally:
        signal.signal(signal.SIGHUP, before)
    assert result(finished.folder) == alone["epochs"]


def test_ctrl_c_ends_the_command_with_130_and_the_same_command_resumes(alone, tmp_path):
    experiment = small(train_steps=100_000, eval_every=1)
    python = [
        sys.executable,
        "-m",
        "mecheval",
        *command(experiment),
        "--save-every",
        "0.1",
        "--out",
        str(tmp_path),
    ]
    process = subprocess.Popen(python, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while not list(tmp_path.glob("*/checkpoints/*.json")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "rerun the same command to resume" in err
    assert "Traceback" not in err
    (row,) = Results(tmp_path).runs()
    assert row["status"] == "stopped"
    reason = f"stopped at step {row['steps']} of 100000; rerun the same command to resume"
    assert row["reason"] == reason
    assert 0 < row["steps"] < 100_000
    watcher = Reaper(row["steps"] + 1)
    with pytest.raises(Stopped):
        run(experiment, tmp_path, watchers=[watcher])
    assert watcher.began == row["steps"]


def test_it_runs_in_another_thread_where_signals_cannot_be_received(alone, tmp_path):
    found = []
    worker = threading.Thread(target=lambda: found.append(run(EXPERIMENTS["epochs"], tmp_path)))
    worker.start()
    worker.join()
    assert result(found[0].folder) == alone["epochs"]


@contextmanager
def failing(disk):
    with pytest.MonkeyPatch.context() as patch:
        disk.install(patch.setattr)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_process_survives_a_disk_error_and_can_resume_itself(number, alone, tmp_path):
    experiment, disk = EXPERIMENTS["epochs"], Disk()
    with failing(disk):
        run(experiment, tmp_path / "counted", OFTEN)
    for at in range(3, len(disk.calls), 11):
        out = tmp_path / str(at)
        with (
            failing(Disk(error_at(at, number))),
            pytest.raises(StoreError, match=os.strerror(number)),
        ):
            run(experiment, out, OFTEN)
        assert broken(out) == []
        assert result(run(experiment, out, OFTEN).folder) == alone["epochs"]


class Passing(nn.Module):
    """Multiplies by a factor that may change."""

    factor, calls = 1.0, 0

    def __init__(self, d_model: int, max_len: int = 32) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        type(self).calls += torch.is_grad_enabled()
        return x * self.scale * self.factor


class Overflowing(Passing):
    """Adds more and more with every training step until it overflows."""

    def forward(self, x):
        type(self).calls += torch.is_grad_enabled()
        return x * self.scale * 10.0 ** (15.0 * self.calls)


class Steep(Passing):
    """Has a gradient that is not finite from the fourth step on, while its output is as before."""

    def forward(self, x):
        steep = (0.0 * self.scale).sqrt() if self.calls >= 3 else 0.0
        return super().forward(x) + steep


class Late(Passing):
    """Returns NaN at the very last evaluation, that of the test documents."""

    looks = 0

    def forward(self, x):
        type(self).looks += not torch.is_grad_enabled()
        return super().forward(x) * (float("nan") if self.looks == STEPS + 2 else 1.0)


class Failing(Passing):
    """Has a bug that shows at the fourth step."""

    broken = True

    def forward(self, x):
        if self.broken and torch.is_grad_enabled() and self.calls == 3:
            raise ZeroDivisionError("division by zero")
        return super().forward(x)


@pytest.fixture
def third_party(own_names, monkeypatch):
    """Return a factory of experiments with a third-party mixer, which is not checked."""
    monkeypatch.setattr(runner, "check_third_party", lambda experiment: None)

    def experiment(mixer, **fields):
        mixer.calls = 0
        mixers.add("third_party", mixer)
        return small(
            architecture="third_party", model_layers=1, train_steps=STEPS, eval_every=1, **fields
        )

    return experiment


def judgements(folder):
    """List the files of a run's folder that tell its quality."""
    return [
        path.name
        for path in folder.iterdir()
        if any(w in path.read_bytes() for w in (b"accuracy", b"likelihood"))
    ]


def test_a_mixer_that_overflows_is_a_diverged_run_within_a_step(third_party, tmp_path):
    found = run(third_party(Overflowing), tmp_path, OFTEN)
    assert found.status == "diverged"
    step = found.outcome["steps"]
    assert 0 < step == Overflowing.calls - 1 < STEPS
    assert found.outcome["reason"].startswith(f"step {step}: ")
    assert "nan" in found.outcome["reason"] or "inf" in found.outcome["reason"]
    assert [row["step"] for row in found.curve] == list(range(1, step + 1))
    assert judgements(found.folder) == []


def test_a_gradient_that_is_not_finite_is_a_divergence_even_if_the_loss_is_finite(
    third_party, tmp_path
):
    found = run(third_party(Steep), tmp_path)
    assert found.outcome["reason"] == "step 3: gradient_norm is nan"
    assert (found.status, found.outcome["steps"]) == ("diverged", 3)
    assert judgements(found.folder) == []


def test_a_model_that_breaks_on_test_documents_only_has_diverged_too(third_party, tmp_path):
    found = run(third_party(Late), tmp_path)
    assert found.outcome["reason"] == f"step {STEPS}: test_loss is nan"
    assert (found.status, found.rows) == ("diverged", [])
    assert judgements(found.folder) == []
    assert not list(tmp_path.glob("*/*.safetensors"))


def test_a_rate_that_is_too_high_is_a_diverged_run_and_the_command_ends_well(tmp_path, capsys):
    experiment = small(train_lr=1e9, train_warmup=0.0, train_steps=STEPS, eval_every=1)
    assert main([*command(experiment), "--json", "--out", str(tmp_path)]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["status"], summary["metrics"]) == ("diverged", {})
    assert summary["reason"].startswith(f"step {summary['steps']}: ")
    assert judgements(tmp_path / experiment.name) == []
    assert not list(tmp_path.glob("*/*.safetensors"))


def test_a_diverged_run_stopped_before_diverges_the_same_way(tmp_path, monkeypatch, third_party):
    experiment = third_party(Overflowing)
    wanted = result(run(experiment, tmp_path / "alone", OFTEN).folder)
    for step in range(1, json.loads(wanted["status.json"])["content"]["steps"] + 1):
        out, Overflowing.calls = tmp_path / str(step), 0
        with pytest.raises(Stopped):
            run(experiment, out, OFTEN, [Reaper(step)])
        Overflowing.calls = step - 1
        assert result(run(experiment, out, OFTEN).folder) == wanted


def test_a_model_that_learned_nothing_is_a_result_like_any_other(third_party, tmp_path):
    found = run(third_party(Passing, train_lr=1e-9), tmp_path)
    assert found.status == "done"
    assert found.summary()["metrics"]["accuracy"]["n"] == 16


def test_an_error_is_noted_listed_and_forgotten_when_it_is_mended(third_party, tmp_path):
    experiment = third_party(Failing)
    with pytest.raises(RunFailed, match="step 3: ZeroDivisionError: division by zero") as found:
        run(experiment, tmp_path, OFTEN)
    assert found.value.exit_code == 1
    (row,) = Results(tmp_path).runs()
    assert (row["status"], row["steps"], row["reason"]) == (
        "error",
        3,
        "step 3: ZeroDivisionError: division by zero",
    )
    Failing.broken, watcher = False, Reaper()
    assert run(experiment, tmp_path, watchers=[watcher]).status == "done"
    assert watcher.began == 3
    assert [path.name for path in tmp_path.iterdir()] == [experiment.name]


def test_a_device_that_is_not_available_is_refused_and_nothing_is_written(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("it is available")
    with pytest.raises(InvalidInput, match="device 'cuda' is not available; use --device cpu"):
        run(EXPERIMENTS["epochs"], tmp_path, Settings(device="cuda"))
    assert list(tmp_path.iterdir()) == []


FAULTS = """
import resource, torch
from mecheval.runs.experiment import Settings
from mecheval.runs.fit import prepared

def step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    parts = [torch.ones(1_000_000) for _ in range(12)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

with prepared(Settings()):
    print(min(step() for _ in range(5)))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other allocators keep what they will"
)
def test_what_a_step_frees_is_there_for_the_next():
    said = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True
    ).stdout
    assert int(said) < 1_000  # 48 MB are 11,700 pages
