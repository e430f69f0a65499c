"""Runs a command line in a child with limits of time and memory, and says what is wrong with it.

A warm parent forks a child for each line, or starts a fresh Python. stdin is closed. A child that
still runs at its limit is a hang; one that trains may be asked to stop before, as by Ctrl-C.
"""

import contextlib
import io
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

EXIT_CODES = (0, 1, 2, 3, 129, 130)  # the documented ones
HANG = -1
SECONDS = 60.0  # for a line; the machine may be busy
MEMORY = 8 << 30  # address space; torch alone maps a few GB
TRACEBACK = b"Traceback (most recent call last)"


@dataclass(frozen=True)
class End:
    """How a command line ended; a hang has no exit code of its own."""

    code: int
    out: bytes
    err: bytes
    seconds: float

    def problems(self, words: Sequence[str] = ()) -> list[str]:
        """List what no command line may do."""
        wrong = []
        if self.code == HANG:
            wrong.append(f"it did not end within {self.seconds:.0f} s")
        elif self.code not in EXIT_CODES:
            wrong.append(f"exit code {self.code} is not documented")
        if TRACEBACK in self.err and "--debug" not in words:
            wrong.append(f"a traceback: {last_line(self.err)}")
        if self.code not in (0, HANG) and not self.err.strip():
            wrong.append(f"exit code {self.code} without a word on stderr")
        return wrong


def last_line(text: bytes) -> str:
    """Return the deepest place in this package and the last line of a traceback."""
    lines = text.decode(errors="replace").strip().splitlines()
    places = [line.strip() for line in lines if line.startswith("  File") and "/mecheval/" in line]
    place = places[-1].rpartition("/mecheval/")[2] if places else "?"
    return f"{place} · {lines[-1] if lines else ''}"[:300]


def forked(
    words: Sequence[str], folder: Path, seconds: float = SECONDS, patience: float | None = None
) -> End:
    """Run a command line in a forked child, in a folder of its own."""
    out, err = (os.memfd_create(name) for name in ("out", "err"))
    start = time.monotonic()
    child = os.fork()
    if not child:
        os._exit(_carried_out(words, folder, out, err))
    code = _wait(child, seconds, patience)
    taken = time.monotonic() - start
    return End(code, _content(out), _content(err), taken)


def fresh(
    words: Sequence[str], folder: Path, seconds: float = SECONDS, patience: float | None = None
) -> End:
    """Run a command line in a new process, with stdin closed."""
    out, err = (os.memfd_create(name) for name in ("out", "err"))
    root = str(Path(__file__).parents[2])
    start = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "mecheval", *map(os.fsencode, words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": root},
        stdout=out,
        stderr=err,
        stdin=subprocess.DEVNULL,
        preexec_fn=_limit,
    )
    code = _wait(process.pid, seconds, patience)
    process.returncode = code
    return End(code, _content(out), _content(err), time.monotonic() - start)


def _limit() -> None:
    os.setsid()
    os.close(0)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _carried_out(words: Sequence[str], folder: Path, out: int, err: int) -> int:
    """Do in the child what `mecheval.cli.script` does in a process of its own."""
    from mecheval.cli import script

    code = 1
    try:
        os.chdir(folder)
        _limit()
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdin = None
        sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(n, "wb", False)) for n in (1, 2))
        sys.argv = ["mecheval", *words]
        script()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    return code & 0xFF


def _wait(child: int, seconds: float, patience: float | None) -> int:
    """Return the exit code; ask it to stop after `patience`, kill its whole group at the limit."""
    start, asked = time.monotonic(), False
    pause = 0.002
    while time.monotonic() - start < seconds:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            _kill_group(child)
            return os.waitstatus_to_exitcode(status)
        if patience is not None and not asked and time.monotonic() - start > patience:
            asked = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGINT)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    _kill_group(child)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return HANG


def _kill_group(child: int) -> None:
    """End what the child may have started and left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


def _content(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    content = os.pread(descriptor, min(size, 4 << 20), 0)
    os.close(descriptor)
    return content
