"""A folder has one process at a time on every system: `flock`, or a file beside the folder."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import filelock
import pytest

from mecheval.core.errors import StoreError
from mecheval.runs import lock
from mecheval.runs.lock import in_use, locked

HOLDER = """
import sys
from pathlib import Path
from mecheval.runs import lock
if sys.argv[2] == "a file":
    import filelock  # with the lock of this system, which is that of a file
    lock.fcntl = None
with lock.locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""
RUN = ["run", "recall:pairs=2,vocab=8", "mamba", "model.d_model=8", "train.documents=0"]
RUN += ["train.steps=2", "eval.documents=16", "eval.grid_documents=16", "eval.every=2", "--json"]


@pytest.fixture(params=["the folder", "a file"])
def kind(request, monkeypatch):
    """What is locked: without `fcntl`, as on Windows, a file beside the folder."""
    if request.param == "a file":
        monkeypatch.setattr(lock, "fcntl", None)
    return request.param


@pytest.fixture
def holder(kind, tmp_path):
    """A process that has locked a folder."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "folder"), kind]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline() == b"locked\n"
        yield process
        process.kill()


def test_a_locked_folder_is_refused_at_once_and_nothing_in_it_changes(holder, tmp_path):
    folder = tmp_path / "folder"
    assert in_use(folder)
    said = "is in use by another process; wait for it or use another folder"
    with pytest.raises(StoreError, match=said) as refused, locked(folder):
        pass
    assert refused.value.exit_code == 3
    assert [*folder.iterdir()] == []
    holder.communicate(b"")
    assert not in_use(folder)
    with locked(folder):
        assert in_use(folder)


def test_the_lock_of_a_killed_process_is_free_at_once(holder, tmp_path):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert not in_use(tmp_path / "folder")
    with locked(tmp_path / "folder"):
        pass


def test_a_second_lock_in_the_same_process_is_refused(kind, tmp_path):
    with locked(tmp_path), pytest.raises(StoreError, match="in use"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_a_locked_folder_can_be_renamed(kind, tmp_path):
    with locked(tmp_path / "run.partial"):
        (tmp_path / "run.partial").rename(tmp_path / "run")
    with locked(tmp_path / "run.partial"):
        pass


def test_looking_writes_nothing(kind, tmp_path):
    (tmp_path / "folder").mkdir()
    assert not in_use(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("elsewhere")])
def test_what_is_no_folder_is_refused(make, kind, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    make(tmp_path / "folder")
    with pytest.raises(StoreError, match="folder cannot be used"), locked(tmp_path / "folder"):
        pass


def test_a_file_system_without_locks_is_named_as_such(tmp_path, monkeypatch):
    def without_locks(descriptor, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lock.fcntl, "flock", without_locks)
    problem = "folder cannot be locked: No locks available; use a folder on another file system"
    with pytest.raises(StoreError, match=problem), locked(tmp_path / "folder"):
        pass
    assert not in_use(tmp_path / "folder")  # nobody can have locked it


def test_filelock_locks_files_and_does_not_only_look_whether_they_exist():
    assert filelock.has_fcntl or os.name == "nt"


WITHOUT_UNIX = """
import json, os, pkgutil, signal, sys, warnings
warnings.filterwarnings("ignore", "only soft file lock")  # what filelock has without fcntl
import torch, duckdb, matplotlib.pyplot, altair  # not ours: they may use what there is
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
del signal.SIGHUP
for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_DIRECTORY", "fork", "mkfifo", "sched_getaffinity"):
    delattr(os, name)
import importlib
import mecheval
for module in pkgutil.walk_packages(mecheval.__path__, "mecheval."):
    if module.name not in ("mecheval.__main__", "mecheval.sweeps.ray"):
        importlib.import_module(module.name)
from mecheval.cli import main
from mecheval.runs.lock import fcntl
assert fcntl is None
out, *words = sys.argv[1:]
codes = [main([*words, "--out", out])]
(run,) = [os.path.join(out, name) for name in os.listdir(out)]
codes += [main(["runs", out]), main(["results", out, "--csv"]), main(["report", out])]
codes += [main(["intervene", run, "--documents", "4"])]
mecheval.Run(run).load_model()
print(json.dumps(codes))
"""


@pytest.mark.slow
def test_the_whole_package_works_without_what_only_unix_has(tmp_path):
    command = [sys.executable, "-c", WITHOUT_UNIX, str(tmp_path / "out"), *RUN]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [0, 0, 0, 0, 0], done.stderr
