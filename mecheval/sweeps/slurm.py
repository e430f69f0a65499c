"""Submit a sweep to Slurm as arrays of plain commands; its status is read from the run folders.

The nodes must see the folder and this Python. Partition, account and the like come from Slurm's own
variables: `SBATCH_PARTITION`, `SBATCH_ACCOUNT`, …
"""

import math
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mecheval.core.errors import InvalidInput, StoreError
from mecheval.core.spec import digest
from mecheval.runs.files import write
from mecheval.runs.lock import locked
from mecheval.sweeps.local import GRACE_SECONDS
from mecheval.sweeps.planned import PlannedRun
from mecheval.sweeps.sweep import Sweep

LONGEST = 1000  # tasks of an array; Slurm's default limit is 1001
HOME = "slurm"  # a folder beside the runs: planned runs, array numbers, workers' output


def submit(sweep: Sweep, only: Sequence[str], at_once: int | None = None) -> tuple[list[str], int]:
    """Submit the runs whose status is in `only`, but none that is running.

    Return the numbers of the arrays and the number of runs.
    """
    if shutil.which("sbatch") is None:
        raise InvalidInput("sbatch is not available; use --slurm on a machine of a Slurm cluster")
    with locked(sweep.folder):
        home = sweep.folder.resolve() / HOME
        todo = [run for run in sweep.runs() if run.status in only and run.status != "running"]
        _refuse_queued(home)
        sweep.plan.write(sweep.folder)
        home.mkdir(exist_ok=True)
        arrays: list[str] = []
        for start in range(0, len(todo), LONGEST):
            arrays.append(_submit_array(sweep, todo[start : start + LONGEST], home, at_once))
            write(home / "arrays", "\n".join(arrays).encode())
    return arrays, len(todo)


def _submit_array(sweep: Sweep, runs: Sequence[PlannedRun], home: Path, at_once: int | None) -> str:
    text = "".join(run.to_json() + "\n" for run in runs)
    path = home / f"{digest(text)[:16]}.jsonl"
    write(path, text.encode())
    options = [f"--job-name=mecheval-{sweep.recipe}", f"--output={home}/%A-%a.txt"]
    options += ["--cpus-per-task=1", "--requeue"]
    options += [f"--array=0-{len(runs) - 1}" + (f"%{at_once}" if at_once else "")]
    if sweep.options.timeout is not None:  # the worker stops itself before
        options += [f"--time={math.ceil((sweep.options.timeout + GRACE_SECONDS) / 60)}"]
    command = shlex.join([sys.executable, "-m", "mecheval.sweeps.worker", str(path)])
    script = f'#!/bin/sh\nexport OMP_NUM_THREADS=1\nexec {command} "$SLURM_ARRAY_TASK_ID"\n'
    sbatch = ["sbatch", "--parsable", *options]
    answer = subprocess.run(sbatch, input=script, capture_output=True, text=True)
    if answer.returncode:
        problem = " ".join((answer.stderr or answer.stdout).split())
        raise StoreError(f"sbatch failed: {problem}; rerun the same command to submit the rest")
    return answer.stdout.strip().partition(";")[0]


def _refuse_queued(home: Path) -> None:
    """Refuse while arrays are queued: their tasks have left nothing in the folder yet."""
    arrays = (home / "arrays").read_text().split() if (home / "arrays").exists() else []
    for array in arrays:
        squeue = ["squeue", "--noheader", f"--jobs={array}"]
        answer = subprocess.run(squeue, capture_output=True, text=True)
        if answer.stdout.strip():  # Slurm forgets those that have ended
            raise StoreError(f"array {array} is in Slurm's queue; wait, or 'scancel {array}'")
