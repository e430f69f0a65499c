"""A function in a process of its own: peaks of memory do not mix, and nobody's imports matter.

python -m benchmarks.isolated MODULE:FUNCTION '{"argument": 1}'     prints what it returns, as JSON
"""

import contextlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from mecheval.core.errors import RunFailed

Record = Mapping[str, Any]
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def apart(function: Callable[..., Record], **arguments: Any) -> dict[str, Any]:
    """What it returns, with its arguments and its answer as JSON; one torch thread."""
    name = f"{function.__module__}:{function.__qualname__}"
    command = [sys.executable, "-m", "benchmarks.isolated", name, json.dumps(arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise RunFailed(f"{name} failed in its process: {last[0]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def memory_mb() -> float:
    """What this process has in memory now; where that is not known, its peak."""
    return _status("VmRSS")


def peak_mb() -> float:
    """The most since it began or `forget_peak`. Not that of `getrusage`, which a process inherits from its parent."""
    return _status("VmHWM")


def forget_peak() -> None:
    with contextlib.suppress(OSError):  # elsewhere than on Linux
        CLEAR.write_text("5")


def _status(name: str) -> float:
    if not STATUS.exists():
        unit = 2**20 if sys.platform == "darwin" else 2**10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    lines = dict(line.partition(":")[::2] for line in STATUS.read_text().splitlines())
    return int(lines[name].split()[0]) / 1024


def main(arguments: list[str]) -> None:
    name, given = arguments
    module, _, function = name.partition(":")
    with contextlib.redirect_stdout(sys.stderr):  # whatever others print
        found = getattr(import_module(module), function)(**json.loads(given))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
