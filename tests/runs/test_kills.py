"""Kills and disk errors at any moment: a run loses nothing and ends in the same bytes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support import fault_injection

pytestmark = pytest.mark.slow

KILLS = 210


def report(*arguments):
    """Return the report of the fault injection; the exit code is 1 where something is wrong."""
    done = subprocess.run(
        [sys.executable, fault_injection.__file__, *arguments],
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout) | {"stderr": done.stderr, "code": done.returncode}


def test_killed_at_any_moment_it_ends_in_the_same_bytes():
    found = report("--kills", str(KILLS))
    assert (found["problems"], found["stderr"], found["code"]) == ([], "", 0)
    combinations = found["combinations"]
    assert (
        len(combinations) == len(fault_injection.TASKS) * len(fault_injection.ARCHITECTURES) == 14
    )
    assert found["kills"] >= 200
    assert all(each["kills"] >= KILLS // 14 for each in combinations.values())
    for way in fault_injection.WAYS:
        assert sum(each["ways"].get(way, 0) for each in combinations.values()) >= KILLS // 10
    assert found["kills"] >= 2 * sum(each["folders"] for each in combinations.values())


@pytest.mark.parametrize("status", fault_injection.RATES)
def test_whatever_happens_at_any_write_the_next_life_recovers(status):
    found = report("--points", status)
    assert (found["problems"], found["stderr"], found["code"]) == ([], "", 0)
    calls = found["calls"]
    assert {
        "open",
        "write",
        "fsync",
        "replace",
        "rename",
        "mkdir",
        "unlink",
        "rmdir",
    } == calls.keys()
    assert found["points"] == sum(calls.values()) >= 50
    for fault in fault_injection.FAULTS:
        at = calls["write"] if fault.endswith("in a write") else found["points"]
        ended = "killed" if fault.startswith("SIGKILL") else "refused"
        assert found["ends"][fault] == {ended: at}, "a fault was survived without a word"


COUNTED = """
import os, sys
from collections import Counter

seen, armed = Counter(), False

def hook(event, arguments):
    if not armed or event not in NAMES:
        return
    if event == "open":
        path, _, flags = arguments
        if not isinstance(path, (str, os.PathLike)) or not flags & (os.O_WRONLY | os.O_RDWR):
            return
    seen[NAMES[event]] += 1

NAMES = {"open": "open", "os.rename": "rename", "os.remove": "unlink"}
NAMES |= {"os.mkdir": "mkdir", "os.rmdir": "rmdir"}
for name in ("os.truncate", "os.link", "os.symlink", "os.chmod", "os.utime", "shutil.rmtree"):
    NAMES[name] = name
sys.addaudithook(hook)
sys.path.insert(0, sys.argv[1])
from support.fault_injection import Disk, small, warm_up
from mecheval.runs.experiment import Settings
from mecheval.runs.run import run

warm_up()
disk = Disk()
disk.install()
armed = True
run(small(train_steps=3, eval_every=1), sys.argv[2], Settings(save_every=0.0))
armed = False
counted = Counter("rename" if call == "replace" else call for call in disk.calls)
del counted["write"], counted["fsync"]
print(seen == counted, sorted(seen.items()), sorted(counted.items()))
"""


def test_no_write_goes_uncounted(tmp_path):
    """Compare with Python's audit events of every call that changes files."""
    tests = Path(fault_injection.__file__).parents[1]
    command = [sys.executable, "-c", COUNTED, tests, tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("True"), done.stdout
