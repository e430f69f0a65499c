"""Where, when and with what a run was made. `made_by` is what could change its bits; the rest is for the record."""

import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("mecheval", "torch", "numpy", "numba", "scipy")


def made_by(device: str, threads: int, plugins: Mapping[str, str]) -> dict[str, Any]:
    """`plugins` are the checksums of the files that were run first, by name."""
    found = {name: version(name) for name in PACKAGES}
    return {**found, "device": device, "threads": threads, "flush_denormal": True, "plugins": dict(plugins)}


@dataclass
class Clock:
    """Seconds of all processes that worked at a run, those that were killed included up to their last checkpoint."""

    wall: float = 0.0
    cpu: float = 0.0
    sessions: int = 1
    _wall: float = field(default_factory=time.monotonic)
    _cpu: float = field(default_factory=time.process_time)

    def read(self) -> dict[str, Any]:
        wall, cpu = time.monotonic() - self._wall, time.process_time() - self._cpu
        return {"wall": self.wall + wall, "cpu": self.cpu + cpu, "sessions": self.sessions}

    @classmethod
    def going_on(cls, before: Mapping[str, Any]) -> "Clock":
        return cls(before["wall"], before["cpu"], before["sessions"] + 1)


def provenance(made: Mapping[str, Any], clock: Clock, started: str) -> dict[str, Any]:
    taken = clock.read()
    return {
        "made_by": made,
        "started": started,
        "finished": timestamp(),
        "wall_seconds": taken["wall"],
        "cpu_seconds": taken["cpu"],
        "sessions": taken["sessions"],
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT,
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "commit": _commit(),
    }


_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def timestamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()


def _commit() -> str | None:
    """Of the checkout this package is in, if it is in one."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    except (
        OSError,
        subprocess.CalledProcessError,
    ):  # no git here, or a broken checkout: then there is no commit to name
        return None
    return done.stdout.strip()
