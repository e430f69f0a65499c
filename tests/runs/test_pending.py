"""A folder belongs to one experiment, one version and one process at a time."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.fault_injection import Reaper, Stopped, result, small

from mecheval.cli import main
from mecheval.core.errors import StoreError
from mecheval.runs import run as runner
from mecheval.runs.experiment import Settings
from mecheval.runs.files import read_json, sha256, write_json
from mecheval.runs.lock import in_use
from mecheval.runs.pending import PendingRun
from mecheval.runs.run import run

EXPERIMENT = small(train_steps=4, eval_every=2)
OTHER = small(train_steps=4, eval_every=2, train_lr=0.5)
WORDS = [
    f"{name}={value}"
    for name, value in EXPERIMENT.fields().items()
    if name not in ("task", "model.architecture")
]
COMMAND = ["run", EXPERIMENT.task_spec, EXPERIMENT.model.architecture, *WORDS, "--json", "--out"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(EXPERIMENT, tmp_path_factory.mktemp("finished")).folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    out = tmp_path_factory.mktemp("stopped")
    with pytest.raises(Stopped):
        run(EXPERIMENT, out, Settings(save_every=0.0), [Reaper(3)])
    return out / f"{EXPERIMENT.name}.partial"


def snapshot(out):
    """Names, contents and times of all that is there."""
    return {
        path.relative_to(out): (
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else None,
        )
        for path in out.rglob("*")
    }


def refused(out, *words, settings=Settings(), experiment=EXPERIMENT):  # noqa: B008
    before = snapshot(out)
    with pytest.raises(StoreError) as caught:
        run(experiment, out, settings)
    assert snapshot(out) == before
    assert caught.value.exit_code == 3
    for word in words:
        assert word in str(caught.value)


def moved(source, out, experiment, ending=""):
    """The folder of a run under the name of another's."""
    return shutil.copytree(source, out / f"{experiment.name}{ending}")


def test_a_folder_on_its_way_of_another_experiment_is_refused(stopped, tmp_path):
    moved(stopped, tmp_path, OTHER, ".partial")
    refused(
        tmp_path, "train.lr was 0.001 and is 0.5", f"key was '{EXPERIMENT.key}'", experiment=OTHER
    )


def test_a_finished_run_of_another_experiment_is_refused(finished, tmp_path):
    moved(finished, tmp_path, OTHER)
    refused(tmp_path, "train.lr was 0.001 and is 0.5", f"and is '{OTHER.key}'", experiment=OTHER)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mecheval", "0.0.1"),
        ("torch", "1.0"),
        ("device", "cuda"),
        ("threads", 7),
        ("plugins", {"x.py": "ab"}),
    ],
)
def test_a_folder_on_its_way_made_otherwise_is_refused(name, value, stopped, tmp_path):
    folder = moved(stopped, tmp_path, EXPERIMENT, ".partial")
    made = read_json(folder / "made_by.json")
    write_json(folder / "made_by.json", made | {name: value})
    refused(
        tmp_path,
        f"{name} was {value!r} and is {made[name]!r}",
        "belongs to another run",
        folder.name,
    )


@pytest.mark.parametrize(("name", "value"), [("mecheval", "0.0.1"), ("numba", "1"), ("threads", 7)])
def test_a_finished_run_made_otherwise_is_refused(name, value, finished, tmp_path):
    folder = moved(finished, tmp_path, EXPERIMENT)
    provenance, sums = read_json(folder / "provenance.json"), read_json(folder / "checksums.json")
    made = provenance["made_by"]
    write_json(folder / "provenance.json", provenance | {"made_by": made | {name: value}})
    content = (folder / "provenance.json").read_bytes()
    write_json(folder / "checksums.json", sums | {"provenance.json": sha256(content)})
    refused(tmp_path, f"{name} was {value!r} and is {made[name]!r}", "belongs to another run")


def test_other_threads_are_refused_before_anything_is_computed(stopped, tmp_path):
    moved(stopped, tmp_path, EXPERIMENT, ".partial")
    before = snapshot(tmp_path)
    assert main([*COMMAND, str(tmp_path), "--threads", "2"]) == 3
    assert snapshot(tmp_path) == before
    refused(tmp_path, "threads was 1 and is 2", settings=Settings(threads=2))
    run(EXPERIMENT, tmp_path)
    refused(tmp_path, "threads was 1 and is 2", settings=Settings(threads=2))


@pytest.mark.parametrize("name", ["experiment.json", "made_by.json"])
def test_a_folder_that_does_not_say_whose_it_is_is_refused(name, stopped, tmp_path):
    folder = moved(stopped, tmp_path, EXPERIMENT, ".partial")
    (folder / name).write_bytes((folder / name).read_bytes()[:-5])
    refused(tmp_path, f"{name} is not what was written", "remove it to start again")


HOLDER = """
import sys, time
from pathlib import Path
from mecheval.runs.pending import PendingRun
with PendingRun(Path(sys.argv[1])).claim():
    print("claimed", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that has claimed the run's folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path / EXPERIMENT.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"claimed\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_process_is_turned_away_and_works_when_the_first_has_ended(
    holder, tmp_path, capsys
):
    folder = tmp_path / f"{EXPERIMENT.name}.partial"
    before = snapshot(tmp_path)
    assert main([*COMMAND, str(tmp_path)]) == 3
    assert "is in use by another process" in capsys.readouterr().err
    assert snapshot(tmp_path) == before
    assert in_use(folder)
    assert holder.poll() is None
    holder.communicate(b"")
    assert not in_use(folder)
    assert main([*COMMAND, str(tmp_path)]) == 0


def test_the_lock_of_a_killed_process_does_not_stay(holder, tmp_path, finished):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert result(run(EXPERIMENT, tmp_path).folder) == result(finished)


def test_a_second_caller_in_the_same_process_is_turned_away_too(tmp_path):
    with PendingRun(tmp_path / EXPERIMENT.name).claim():
        refused(tmp_path, "is in use by another process")


def test_asking_whether_a_folder_is_in_use_blocks_no_process(tmp_path):
    place, stop = PendingRun(tmp_path / "run"), threading.Event()
    with place.claim():
        pass

    def look():
        while not stop.wait(0.001):
            in_use(place.folder)

    looker = threading.Thread(target=look)
    looker.start()
    try:
        for _ in range(1000):
            with place.claim():
                pass
    finally:
        stop.set()
        looker.join()


@pytest.mark.slow
def test_processes_that_race_for_a_run_make_it_once(tmp_path, finished):
    command = [sys.executable, "-m", "mecheval", *COMMAND, str(tmp_path)]
    racers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)
    ]
    told = [(racer.communicate(timeout=120), racer.returncode) for racer in racers]
    for (out, err), code in told:
        assert code in (0, 3), err
        assert (
            json.loads(out)["key"] == EXPERIMENT.key
            if code == 0
            else b"in use by another process" in err
        )
    assert 0 in [code for _, code in told]
    assert [path.name for path in tmp_path.iterdir()] == [EXPERIMENT.name]
    assert result(tmp_path / EXPERIMENT.name) == result(finished)


def test_who_comes_just_after_the_end_finds_the_run_and_leaves_nothing(
    finished, tmp_path, monkeypatch
):
    """The first process renames its folder between the second one's look at it and its claim."""

    @contextmanager
    def meanwhile(settings):
        moved(finished, tmp_path, EXPERIMENT)
        yield

    monkeypatch.setattr(runner, "prepared", meanwhile)
    assert result(run(EXPERIMENT, tmp_path).folder) == result(finished)
    assert [path.name for path in tmp_path.iterdir()] == [EXPERIMENT.name]


def test_every_new_name_is_made_to_last_at_once(tmp_path, monkeypatch):
    """A folder is synced after a new name in it, or a power cut would take the name away."""
    named, synced = [], []

    def watched(name, real):
        def call(*paths, **keywords):
            done = real(*paths, **keywords)
            if name == "fsync":
                synced.append((len(named), Path(f"/proc/self/fd/{paths[0]}").readlink()))
            else:
                named.append(Path(paths[0] if name == "mkdir" else paths[1]))
            return done

        return call

    for name in ("mkdir", "replace", "rename", "fsync"):
        monkeypatch.setattr(os, name, watched(name, getattr(os, name)))
    run(EXPERIMENT, tmp_path, Settings(save_every=0.0))
    assert {path.name for path in named} >= {
        f"{EXPERIMENT.name}.partial",
        "checkpoints",
        "status.json",
        EXPERIMENT.name,
    }
    assert [
        path for count, path in enumerate(named, start=1) if (count, path.parent) not in synced
    ] == []


def test_a_folder_that_only_lacks_its_name_gets_it_and_nothing_is_computed(
    finished, stopped, tmp_path, monkeypatch
):
    folder = moved(finished, tmp_path, EXPERIMENT, ".partial")
    shutil.copytree(stopped / "checkpoints", folder / "checkpoints")
    (folder / "weights.safetensors.tmp").write_bytes(b"torn")
    monkeypatch.setattr(runner, "Session", None)
    found = run(EXPERIMENT, tmp_path)
    assert {path.name: path.read_bytes() for path in found.folder.iterdir()} == {
        path.name: path.read_bytes() for path in finished.iterdir()
    }


@pytest.mark.parametrize("name", ["checksums.json", "rows.jsonl", "weights.safetensors"])
def test_a_folder_that_lacks_more_is_made_again(name, finished, stopped, tmp_path):
    folder = moved(finished, tmp_path, EXPERIMENT, ".partial")
    shutil.copy(stopped / "made_by.json", folder)
    (folder / name).write_bytes((folder / name).read_bytes()[:-9])
    assert result(run(EXPERIMENT, tmp_path).folder) == result(finished)


@pytest.mark.parametrize("kind", ["link", "file"])
@pytest.mark.parametrize("ending", ["", ".partial"])
def test_a_link_or_a_file_in_place_of_the_folder_is_refused(
    kind, ending, stopped, finished, tmp_path
):
    path = tmp_path / f"{EXPERIMENT.name}{ending}"
    if kind == "link":
        path.symlink_to(stopped if ending else finished)
    else:
        path.write_bytes(b"")
    refused(tmp_path, str(path), "cannot be used" if ending else "is not a complete run")


def test_a_folder_that_may_not_be_written_is_refused(tmp_path, monkeypatch):
    (tmp_path / "out").write_bytes(b"")
    with pytest.raises(StoreError, match="cannot be used"):
        run(EXPERIMENT, tmp_path / "out")
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(StoreError, match="cannot be used: Permission denied"):
            run(EXPERIMENT, tmp_path / "closed")
