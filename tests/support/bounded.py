"""Runs command lines with limits of time and memory, and says what is wrong with how they end.

A line runs in a forked child of a warm process, in a fresh Python, or after others in one child,
which is cheapest. stdin cannot be read. Time is CPU time, since the machine may be busy: a child
that uses too much of it, or that sleeps and uses none, hangs; one that may train for long can be
asked to stop before, as by Ctrl-C.
"""

import contextlib
import gc
import importlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.watched import HANG, IDLE, Watched

EXIT_CODES = (0, 1, 2, 3, 129, 130)  # the documented ones
MEMORY = 8 << 30  # address space; torch alone maps a few GB
TRACEBACK = b"Traceback (most recent call last)"
PLACES = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[2] / "mecheval"))
_tried: set[str] = set()  # modules, whether or not they could be imported
BATCH = 40  # cases that a child carries out before there is a new one
KINDS = ("traceback", "hang", "exit code", "no word", "written", "omission")


@dataclass(frozen=True)
class Problem:
    """What is wrong with the end of a line; the kind is one of KINDS."""

    kind: str
    text: str


@dataclass(frozen=True)
class End:
    """How a command line ended; a hang has no exit code of its own."""

    code: int
    out: bytes
    err: bytes
    cpu: float

    @property
    def name(self) -> str:
        if self.code == HANG:
            return "hang"
        return str(self.code) if self.code >= 0 else signal.Signals(-self.code).name

    def problems(self, words: Sequence[str] = ()) -> list[Problem]:
        """List what no command line may do."""
        wrong = []
        if self.code == HANG:
            wrong.append(Problem("hang", f"it did not end; it had used {self.cpu:.0f} s"))
        elif self.code not in EXIT_CODES:
            wrong.append(Problem("exit code", f"{self.name} is not documented"))
        if TRACEBACK in self.err and "--debug" not in words:
            wrong.append(Problem("traceback", last_line(self.err)))
        if self.code not in (0, HANG) and not self.err.strip():
            wrong.append(Problem("no word", f"exit code {self.name} without a word on stderr"))
        return wrong


def last_line(text: bytes) -> str:
    """Return the deepest place in this package and the last line of a traceback."""
    lines = text.decode(errors="replace").strip().splitlines()
    places = [line.strip() for line in lines if line.startswith("  File") and "/mecheval/" in line]
    place = places[-1].rpartition("/mecheval/")[2] if places else "?"
    return f"{place} · {lines[-1] if lines else ''}"[:300]


def fresh(
    words: Sequence[str], folder: Path, patience: float | None = None, idle: float = IDLE
) -> End:
    """Run a command line in a new process."""
    out, err = (os.memfd_create(name) for name in ("out", "err"))
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-m", "mecheval", *map(os.fsencode, words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": root},
        stdout=out,
        stderr=err,
        stdin=subprocess.DEVNULL,
        preexec_fn=_limit,
    )
    watched = Watched(process.pid, idle, patience)
    while not watched.ended(250):
        if watched.hangs():
            watched.kill()
    process.returncode, cpu = watched.reap()
    return End(process.returncode, _content(out), _content(err), cpu)


def forked(
    words: Sequence[str], folder: Path, patience: float | None = None, idle: float = IDLE
) -> End:
    """Run a command line in a forked child, in a folder of its own."""
    out, err, modules = (os.memfd_create(name) for name in ("out", "err", "modules"))
    gc.freeze()  # or a collection in the child would copy every page that holds an object
    known = {*sys.modules}
    child = os.fork()
    if not child:
        _limit()
        code = _call(words, folder, out, err)
        os.write(modules, "\n".join(_libraries(known)).encode())
        os._exit(code)
    watched = Watched(child, idle, patience)
    while not watched.ended(250):
        if watched.hangs():
            watched.kill()
    code, cpu = watched.reap()
    _import(_content(modules).decode().split("\n"))
    return End(code, _content(out), _content(err), cpu)


def inside(words: Sequence[str], folder: Path) -> End:
    """Run a command line in this process, which `in_turn` forked for it."""
    out, err = (os.memfd_create(name) for name in ("out", "err"))
    place, streams = Path.cwd(), (sys.stdin, sys.stdout, sys.stderr)
    kept = [os.dup(number) for number in (1, 2)]
    start = time.process_time()
    try:
        code = _call(words, folder, out, err)
    finally:
        cpu = time.process_time() - start
        sys.stdin, sys.stdout, sys.stderr = streams
        for number, descriptor in zip((1, 2), kept, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.chdir(place)
    return End(code, _content(out), _content(err), cpu)


def in_turn(
    jobs: Sequence[Any], do: Callable[[Any], Any], size: int = BATCH, idle: float = IDLE
) -> Iterator[tuple[Any, Any | End]]:
    """Yield each job with what `do` returned for it, in a child that does `size` of them.

    Instead, yield how the child ended if it hung or died at the job; the next has a new child.
    """
    jobs = list(jobs)
    while jobs:
        gc.freeze()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            _limit()
            os._exit(_answer(jobs[:size], do, writing))
        os.close(writing)
        watched, asked = Watched(child, idle), len(jobs) - min(size, len(jobs))
        with os.fdopen(reading, "rb", buffering=0) as answers:
            while len(jobs) > asked and not watched.stuck:
                if not watched.ready(reading, 250):
                    watched.hangs()
                elif answer := answers.readline():
                    watched.start()
                    yield jobs.pop(0), json.loads(answer)
                else:
                    break
        if watched.stuck:
            watched.kill()
        code, cpu = watched.reap()
        if len(jobs) > asked:
            yield jobs.pop(0), End(code or -signal.SIGKILL, b"", b"the process has ended", cpu)


def _answer(jobs: Sequence[Any], do: Callable[[Any], Any], writing: int) -> int:
    try:
        for job in jobs:
            os.write(writing, json.dumps(do(job)).encode() + b"\n")
    except BaseException:  # or the child would go on as if it were its parent
        traceback.print_exc()
        return 70
    return 0


def _limit() -> None:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 0)  # reading fails, and no file gets its number
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _call(words: Sequence[str], folder: Path, out: int, err: int) -> int:
    """Do what `mecheval.cli.script` does in a process of its own, with output to these files."""
    from mecheval.cli import script

    code = 1
    try:
        os.chdir(folder)
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


def _libraries(before: set[str]) -> Iterator[str]:
    """Yield the modules that were imported since, without plug-ins, which lie elsewhere."""
    for name in sys.modules.keys() - before:
        path = getattr(sys.modules[name], "__file__", None)
        if path and path.startswith(PLACES):
            yield name


def _import(names: Sequence[str]) -> None:
    """Import what a child had to import, so that later ones need not: most time goes there."""
    for name in names:
        if name and name not in sys.modules and name not in _tried:
            _tried.add(name)
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def _content(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    content = os.pread(descriptor, min(size, 4 << 20), 0)
    os.close(descriptor)
    return content
