"""Looks at the CPU time of a child, to tell whether it hangs, however busy the machine is."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

HANG = -1000  # no exit code and no signal
SECONDS = 60.0  # of CPU time, for a line
IDLE = 20.0  # seconds in which neither the child nor what it started uses any
TICKS = os.sysconf("SC_CLK_TCK")


class Watched:
    """A child whose CPU time is looked at from time to time."""

    def __init__(self, child: int, idle: float = IDLE, patience: float | None = None) -> None:
        self.child, self.stuck = child, False
        self._idle, self._patience = idle, patience
        self._used = 0.0
        self._end = os.pidfd_open(child)
        self.start()

    def start(self) -> None:
        """Count from now: it has begun something new."""
        self._base = self._used = self._family_time()[1]
        self._since = time.monotonic()

    def ended(self, milliseconds: int) -> bool:
        return self.ready(self._end, milliseconds)

    def ready(self, descriptor: int, milliseconds: int) -> bool:
        """Wait until there is something to read, or it has ended."""
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        return bool(waiting.poll(milliseconds))

    def hangs(self) -> bool:
        """Tell whether it hangs; ask it to stop when there is no more patience."""
        busy, now = self._family_time()
        if busy or now > self._used:
            self._used, self._since = now, time.monotonic()
        spent = self._used - self._base
        self.stuck = spent > SECONDS or time.monotonic() - self._since > self._idle
        if self._patience is not None and spent > self._patience:
            self._patience = None
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child, signal.SIGINT)
        return self.stuck

    def kill(self) -> None:
        """End it and what it started."""
        for process in [*_family(self.child)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def reap(self) -> tuple[int, float]:
        """Return its exit code, or HANG, and its CPU time."""
        _, status, spent = os.wait4(self.child, 0)
        os.close(self._end)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child, signal.SIGKILL)  # what it left
        code = HANG if self.stuck else os.waitstatus_to_exitcode(status)
        return code, spent.ru_utime + spent.ru_stime

    def _family_time(self) -> tuple[bool, float]:
        """Tell whether it or a process that it started has work, and their CPU time."""
        busy, ticks = False, 0
        for process in _family(self.child):
            with contextlib.suppress(OSError):  # it has ended
                facts = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                busy |= facts[0] == "R"
                ticks += sum(map(int, facts[11:15]))
        return busy, ticks / TICKS


def _family(process: int) -> Iterator[int]:
    yield process
    for tasks in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in tasks.read_text().split():
                yield from _family(int(child))
