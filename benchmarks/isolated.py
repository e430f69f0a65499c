"""Run a function in a process of its own, so that neither peak memory nor imports of others count.

python -m benchmarks.isolated MODULE:FUNCTION '{"argument": 1}'     prints the result as JSON
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

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def run_isolated(function: Callable[..., Mapping[str, Any]], **arguments: Any) -> dict[str, Any]:
    """Call the function in a new process with one torch thread; pass and return JSON."""
    process = subprocess.run(
        command("benchmarks.isolated", function, arguments),
        capture_output=True,
        text=True,
        env=one_thread(),
    )
    if process.returncode:
        raise process_error(_name(function), process.stderr, process.returncode)
    result: dict[str, Any] = json.loads(process.stdout)
    return result


def command(module: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> list[str]:
    """Return the command line with which `module` calls the function."""
    return [sys.executable, "-m", module, _name(function), json.dumps(arguments)]


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}:{function.__qualname__}"


def one_thread() -> dict[str, str]:
    """Return the environment of a process with one torch thread."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def process_error(name: str, stderr: str, exit_code: int) -> RunFailed:
    last = stderr.strip().splitlines()[-1:] or [f"exit code {exit_code}"]
    return RunFailed(f"{name} failed in its process: {last[0]}")


def parse_command(arguments: list[str]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the function and its arguments from what `command` wrote."""
    module, _, function = arguments[0].partition(":")
    return getattr(import_module(module), function), json.loads(arguments[1])


def memory_mb() -> float:
    """Return the resident memory of this process; its peak where the system does not report it."""
    return _status("VmRSS")


def peak_mb() -> float:
    """Return the largest resident memory since the start or the last `reset_peak`.

    `getrusage` would not do: a process inherits its value from the parent.
    """
    return _status("VmHWM")


def reset_peak() -> None:
    with contextlib.suppress(OSError):  # only Linux has it
        CLEAR.write_text("5")


def _status(name: str) -> float:
    if not STATUS.exists():
        unit = 2**20 if sys.platform == "darwin" else 2**10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    lines = dict(line.partition(":")[::2] for line in STATUS.read_text().splitlines())
    return int(lines[name].split()[0]) / 1024


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):  # keeps stdout free of what packages print
        function, arguments = parse_command(sys.argv[1:])
        result = function(**arguments)
    sys.stdout.write(json.dumps(result))
