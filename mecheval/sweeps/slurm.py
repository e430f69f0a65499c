"""Submits a sweep to Slurm as arrays of plain commands, and returns: how it stands is read off the run folders.

The folder and this Python must be seen by the nodes. Partition, account and the like come from Slurm's own variables,
`SBATCH_PARTITION`, `SBATCH_ACCOUNT`, …
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
from mecheval.runs.pending import locked
from mecheval.sweeps.agenda import Agenda
from mecheval.sweeps.job import Job
from mecheval.sweeps.local import GRACE_SECONDS

LONGEST = 1000  # tasks of an array; Slurm's own limit is 1001 if nobody changed it
HOME = "slurm"  # a folder beside the runs: jobs, numbers of arrays, what workers said


def submit(agenda: Agenda, only: Sequence[str], at_once: int | None = None) -> tuple[list[str], int]:
    """The numbers of the arrays, and how many runs they have; whoever is at work already is left alone."""
    if shutil.which("sbatch") is None:
        raise InvalidInput("sbatch is not here; --slurm must be given on a machine of a Slurm cluster")
    with locked(agenda.folder):
        home = agenda.folder.resolve() / HOME
        todo = [state.job for state in agenda.states() if state.status in only and state.status != "running"]
        _refuse_a_second(home)
        agenda.plan.write(agenda.folder)
        home.mkdir(exist_ok=True)
        parts = [todo[start : start + LONGEST] for start in range(0, len(todo), LONGEST)]
        arrays: list[str] = []
        for part in parts:
            arrays.append(_array(agenda, part, home, at_once))
            write(home / "arrays", "\n".join(arrays).encode())
    return arrays, len(todo)


def _array(agenda: Agenda, jobs: Sequence[Job], home: Path, at_once: int | None) -> str:
    text = "".join(job.to_json() + "\n" for job in jobs)
    path = home / f"{digest(text)[:16]}.jsonl"
    write(path, text.encode())
    options = [f"--job-name=mecheval-{agenda.recipe}", f"--output={home}/%A-%a.txt", "--cpus-per-task=1", "--requeue"]
    options += [f"--array=0-{len(jobs) - 1}" + (f"%{at_once}" if at_once else "")]
    if agenda.options.timeout is not None:  # the worker stops itself before
        options += [f"--time={math.ceil((agenda.options.timeout + GRACE_SECONDS) / 60)}"]
    command = shlex.join([sys.executable, "-m", "mecheval.sweeps.worker", str(path)])
    script = f'#!/bin/sh\nexport OMP_NUM_THREADS=1\nexec {command} "$SLURM_ARRAY_TASK_ID"\n'
    done = subprocess.run(["sbatch", "--parsable", *options], input=script, capture_output=True, text=True)
    if done.returncode:
        raise StoreError(f"sbatch refused: {' '.join((done.stderr or done.stdout).split())}; the same command goes on")
    return done.stdout.strip().partition(";")[0]


def _refuse_a_second(home: Path) -> None:
    """Tasks that wait in the queue have left nothing in the folder yet."""
    arrays = (home / "arrays").read_text().split() if (home / "arrays").exists() else []
    for array in arrays:
        asked = subprocess.run(["squeue", "--noheader", f"--jobs={array}"], capture_output=True, text=True)
        if asked.stdout.strip():  # of those that have ended Slurm knows nothing
            raise StoreError(f"array {array} is in Slurm's queue; wait for it, or 'scancel {array}'")
