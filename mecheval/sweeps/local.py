"""Workers on this machine: one process per run, so that a crash, a leak or a hang costs one run."""

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

from mecheval.sweeps.planned import Outcome, PlannedRun

GRACE_SECONDS = 60.0  # for one step and a checkpoint, before a worker that must stop is killed


class Process:
    """A worker process. SIGTERM stops it, and so does the end of this process."""

    def __init__(self) -> None:
        """Start a worker that imports torch and waits for a run."""
        self._deadline = math.inf
        self._stdout = tempfile.TemporaryFile()  # noqa: SIM115, _text closes it
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115, _text closes it
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mecheval.sweeps.worker"],
            stdin=subprocess.PIPE,
            stdout=self._stdout,
            stderr=self._stderr,
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # before torch starts
            start_new_session=True,  # only the launcher receives Ctrl-C
        )

    def start(self, run: PlannedRun) -> None:
        self.run = run
        if run.timeout is not None:
            self._deadline = time.monotonic() + run.timeout + GRACE_SECONDS
        assert self._process.stdin
        with suppress(BrokenPipeError):  # it is dead already, and `outcome` will say so
            self._process.stdin.write(run.to_json().encode() + b"\n")
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def outcome(self) -> Outcome | None:
        """Return how it ended, or None while it works; kill it if it hangs."""
        hung = self._process.poll() is None and time.monotonic() > self._deadline
        if hung:
            self.kill()
        code = self._process.poll()
        if code is None:
            return None
        outcome = self._read_outcome(code)
        if hung:
            return Outcome("timeout", f"hung, killed {GRACE_SECONDS:g} s after its time was up")
        return outcome

    def terminate(self) -> None:
        """Let it save and stop."""
        if self._process.poll() is not None:
            return
        if os.name == "nt":  # where `terminate` ends it at once; it stops when its stdin ends
            self._close_stdin()
        else:
            self._process.terminate()

    def wait(self, seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _close_stdin(self) -> None:
        assert self._process.stdin
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def _read_outcome(self, code: int) -> Outcome:
        self._close_stdin()
        stdout, stderr = _text(self._stdout), _text(self._stderr)
        try:
            return Outcome.from_json(stdout)
        except (json.JSONDecodeError, TypeError):
            last = stderr.strip().splitlines()[-1:]
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            return Outcome("killed", ": ".join([f"its process died by {how}", *last]))


class Local:
    """An executor with up to `workers` processes.

    One process starts at once: it imports torch while the launcher reads its folder.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._running: list[Process] = []
        self._ready = [Process()]

    @property
    def free(self) -> int:
        return self._workers - len(self._running)

    def start(self, run: PlannedRun) -> None:
        process = self._ready.pop() if self._ready else Process()
        self._running.append(process)
        process.start(run)

    def ended(self) -> Iterator[tuple[PlannedRun, Outcome]]:
        for process in list(self._running):
            if outcome := process.outcome():
                self._running.remove(process)
                yield process.run, outcome

    def stop(self) -> None:
        """Let every worker save and stop; kill those that do not in time."""
        for process in self._running:
            process.terminate()
        until = time.monotonic() + GRACE_SECONDS
        try:
            for process in self._running:
                process.wait(max(until - time.monotonic(), 0))
        finally:  # also after a second Ctrl-C
            for process in self._running + self._ready:
                process.kill()
                process.outcome()
            self._running.clear()
            self._ready.clear()


def _text(file: IO[bytes]) -> str:
    with file:
        file.seek(0)
        return file.read().decode(errors="replace")
