"""Slurm gets an array of plain commands, run by a stand-in for sbatch and by a real one, if any."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
from support.sweep_runs import DIVERGES, alone, results, seeds

from mecheval.cli import main
from mecheval.core.errors import InvalidInput, StoreError
from mecheval.results.plan import Plan
from mecheval.results.table import Results
from mecheval.runs.pending import PendingRun
from mecheval.sweeps.options import SweepOptions
from mecheval.sweeps.slurm import submit
from mecheval.sweeps.sweep import OPEN, Sweep

SBATCH = """#!{python}
import json, os, re, subprocess, sys
words, script = sys.argv[1:], sys.stdin.read()
array = next(word for word in words if word.startswith("--array="))
with open(os.environ["SAID"], "a") as said:
    said.write(json.dumps(words) + "\\n")
for task in range(int(re.search("0-([0-9]+)", array)[1]) + 1):
    own = {{**os.environ, "SLURM_ARRAY_TASK_ID": str(task)}}
    subprocess.run(["sh"], input=script, text=True, stdout=subprocess.DEVNULL, env=own, check=True)
print("17;here")
"""
SQUEUE = """#!/bin/sh
[ -e "$QUEUED" ] && echo '17_[0-1] PD' || exit 1
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    home = tmp_path / "bin"
    home.mkdir()
    for name, text in (("sbatch", SBATCH.format(python=sys.executable)), ("squeue", SQUEUE)):
        (home / name).write_text(text)
        (home / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(home), prepend=os.pathsep)
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    monkeypatch.setenv("QUEUED", str(tmp_path / "queued"))
    return tmp_path


def planned(out, experiments, **options):
    return Sweep(experiments, out, "mine", "own", SweepOptions(**options))


@pytest.mark.slow
def test_an_array_gives_the_same_bytes(slurm):
    experiments, out = [*seeds(1), *seeds(1, **DIVERGES)], slurm / "out"
    assert submit(planned(out, experiments, timeout=600.0), OPEN, 8) == (["17"], 2)
    (words,) = [json.loads(line) for line in (slurm / "said").read_text().splitlines()]
    assert {"--parsable", "--array=0-1%8", "--time=11", "--cpus-per-task=1"} <= {*words}
    kept = {name: files for name, files in results(out).items() if name != "slurm"}
    assert kept == alone(experiments, slurm / "alone")
    assert [state["status"] for state in Plan.read(out).states(Results(out))] == [
        "done",
        "diverged",
    ]
    assert submit(planned(out, experiments), OPEN) == ([], 0), "nothing is left to do"


def test_a_worker_without_a_launcher_keeps_its_own_failure(slurm):
    out = slurm / "out"
    own = planned(out, seeds(1), timeout=0.01)
    submit(own, OPEN)
    (run,) = own.runs()
    assert (run.status, run.reason) == ("timeout", "not finished after 0.01 seconds")


def test_what_waits_in_the_queue_is_not_submitted_twice(slurm, monkeypatch):
    own = planned(slurm / "out", seeds(2))
    (slurm / "bin" / "sbatch").write_text("#!/bin/sh\necho 17\n")
    assert submit(own, OPEN) == (["17"], 2)
    (slurm / "queued").touch()
    with pytest.raises(StoreError, match="array 17 is in Slurm's queue"):
        submit(own, OPEN)
    (slurm / "queued").unlink()
    with PendingRun(slurm / "out" / own.experiments[0].name).claim():
        assert submit(own, OPEN) == (["17"], 1), "one is at work"


def test_a_refusal_is_told_and_nothing_is_lost(slurm, capsys):
    (slurm / "bin" / "sbatch").write_text(
        "#!/bin/sh\necho 'sbatch: error: invalid partition' >&2\nexit 1\n"
    )
    assert main(["sweep", "run", "demo", "--slurm", "--out", str(slurm / "out")]) == 3
    assert "invalid partition" in capsys.readouterr().err


def test_without_slurm_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidInput, match="sbatch is not available"):
        submit(planned(tmp_path / "out", seeds(1)), OPEN)
    assert not (tmp_path / "out").exists()


def slurm_answers():
    return (
        shutil.which("sinfo") is not None
        and not subprocess.run(["sinfo"], capture_output=True).returncode
    )


@pytest.mark.skipif(not slurm_answers(), reason="no Slurm answers here; tests/slurm.sh starts one")
def test_a_real_slurm_gives_the_same_bytes(tmp_path):
    experiments, out = [*seeds(3), *seeds(1, **DIVERGES)], tmp_path / "out"
    own = planned(out, experiments)
    arrays, runs = submit(own, OPEN)
    assert (len(arrays), runs) == (1, 4)
    until = time.monotonic() + 300
    while {run.status for run in own.runs()} - {"done", "diverged"} and time.monotonic() < until:
        time.sleep(1)
    said = [path.read_text() for path in (out / "slurm").glob("*.txt")]
    assert [run.status for run in own.runs()] == ["done", "done", "done", "diverged"], said
    kept = {name: files for name, files in results(out).items() if name != "slurm"}
    assert kept == alone(experiments, tmp_path / "alone")
