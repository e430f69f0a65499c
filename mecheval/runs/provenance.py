"""Provenance of a run: where, when and with what it was made.

`made_by` is the part that could change its bits: versions, device, threads and imported files. A
run is only resumed or reused with the same `made_by`. The rest is for the record.
"""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

PACKAGES = ("mecheval", "torch", "numpy", "numba", "scipy")
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def made_by(
    device: str, threads: int, plugins: Mapping[str, str], packages: Sequence[str] = ()
) -> dict[str, Any]:
    """Return what could change the bits of a run.

    `plugins` are checksums of the imported files, `packages` those that have the model's code.
    """
    versions = {name: _version(name) for name in (*PACKAGES, *packages)}
    options = {"device": device, "threads": threads, "flush_denormal": True}
    return {**versions, **options, "plugins": dict(plugins)}


@cache
def _version(package: str) -> str:
    return version(package)


@dataclass
class Clock:
    """The seconds of all processes of a run; a killed one counts up to its last checkpoint."""

    wall: float = 0.0
    cpu: float = 0.0
    sessions: int = 1
    _wall: float = field(default_factory=time.monotonic)
    _cpu: float = field(default_factory=time.process_time)

    def read(self) -> dict[str, Any]:
        wall, cpu = time.monotonic() - self._wall, time.process_time() - self._cpu
        return {"wall": self.wall + wall, "cpu": self.cpu + cpu, "sessions": self.sessions}

    @classmethod
    def resume(cls, before: Mapping[str, Any]) -> "Clock":
        """Start the next session of a clock that was read and saved."""
        return cls(before["wall"], before["cpu"], before["sessions"] + 1)


def provenance(
    made: Mapping[str, Any],
    clock: Clock,
    started: str,
    classes: Mapping[str, str] = MappingProxyType({}),
    files: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the content of `provenance.json`; `made` is the run's `made_by`.

    `classes` tells where each class was defined that was given as such, for example in a notebook;
    `files` what `--plugin` takes for each class that came from a file.
    """
    seconds = clock.read()
    return {
        "made_by": made,
        "started": started,
        **({"classes": dict(classes)} if classes else {}),
        **({"plugin_files": dict(files)} if files else {}),
        "finished": timestamp(),
        "wall_seconds": seconds["wall"],
        "cpu_seconds": seconds["cpu"],
        "sessions": seconds["sessions"],
        "peak_memory_bytes": _peak_memory(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "commit": _commit(),
    }


def timestamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _peak_memory() -> int | None:
    """Return the most memory that this process has had, in bytes, or None where nobody counts."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT if resource else None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _commit() -> str | None:
    """Return the commit of the checkout this package is in, if it is in one."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):  # git is missing, or the checkout is broken
        return None
