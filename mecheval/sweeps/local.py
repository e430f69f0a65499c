"""Workers on this machine: a process for each experiment, so that a crash, a leak or a hang costs one run."""

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import IO

from mecheval.sweeps.job import Job, Outcome

GRACE_SECONDS = 60.0  # for one step and a checkpoint, before a worker that was told to stop is killed


class Process:
    """A worker. It is told to stop by SIGTERM, or by the end of this process, however that comes."""

    def __init__(self, job: Job | None = None) -> None:
        """Without a job it gets ready for one."""
        self._deadline = math.inf
        self._said, self._complaints = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115, see _text
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mecheval.sweeps.worker"],
            stdin=subprocess.PIPE,
            stdout=self._said,
            stderr=self._complaints,
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # before torch starts
            start_new_session=True,  # Ctrl-C comes to the launcher alone
        )
        if job:
            self.begin(job)

    def begin(self, job: Job) -> None:
        self.job = job
        if job.timeout is not None:
            self._deadline = time.monotonic() + job.timeout + GRACE_SECONDS
        stdin = self._process.stdin
        assert stdin
        with suppress(BrokenPipeError):  # it is dead already, which `outcome` will tell
            stdin.write(job.to_json().encode() + b"\n")
            stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def outcome(self) -> Outcome | None:
        """None while it works."""
        hung = self._process.poll() is None and time.monotonic() > self._deadline
        if hung:
            self.kill()
        code = self._process.poll()
        if code is None:
            return None
        outcome = self._ended(code)
        return (
            Outcome("timeout", f"hung, and was killed {GRACE_SECONDS:g} s after its time was up") if hung else outcome
        )

    def tell(self) -> None:
        """To save and stop."""
        if self._process.poll() is None:
            self._process.terminate()

    def wait(self, seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _ended(self, code: int) -> Outcome:
        assert self._process.stdin
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        said, complaints = _text(self._said), _text(self._complaints)
        try:
            return Outcome.from_json(said)
        except (json.JSONDecodeError, TypeError):
            last = complaints.strip().splitlines()[-1:]
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            return Outcome("killed", ": ".join([f"its process died by {how}", *last]))


class Local:
    """So many workers at once. One gets ready while the launcher sees what there is to do: importing torch takes it as
    long as that."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._at_work: list[Process] = []
        self._ready = [Process()]

    @property
    def free(self) -> int:
        return self._workers - len(self._at_work)

    def start(self, job: Job) -> None:
        process = self._ready.pop() if self._ready else Process()
        self._at_work.append(process)
        process.begin(job)

    def ended(self) -> Iterator[tuple[Job, Outcome]]:
        """Who has ended meanwhile, and how."""
        for process in list(self._at_work):
            if outcome := process.outcome():
                self._at_work.remove(process)
                yield process.job, outcome

    def stop(self) -> None:
        """Everybody saves and stops."""
        for process in self._at_work:
            process.tell()
        until = time.monotonic() + GRACE_SECONDS
        try:
            for process in self._at_work:
                process.wait(max(until - time.monotonic(), 0))
        finally:  # their time is up, or somebody is impatient
            for process in self._at_work + self._ready:
                process.kill()
                process.outcome()
            self._at_work.clear()
            self._ready.clear()


def _text(file: IO[bytes]) -> str:
    with file:
        file.seek(0)
        return file.read().decode(errors="replace")
