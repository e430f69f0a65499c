"""Describe the machine that the ratios were measured on, and how busy it is."""

import os
from typing import Any

from benchmarks.flops import gemm, gemm_rate
from benchmarks.measure import time_rounds
from mecheval.runs.experiment import Settings
from mecheval.runs.fit import prepared
from mecheval.runs.provenance import Clock, made_by, provenance, timestamp

FACTS = ("processor", "cores", "system", "python", "commit", "started")
ROUNDS = 9
BUSY = 0.5  # load of the last minute, before the first measurement


def facts() -> dict[str, Any]:
    """Return hardware, versions and settings of a run, and the rate of a large matrix product."""
    settings = Settings()
    versions = made_by(settings.device, settings.threads, {})
    machine = provenance(versions, Clock(), timestamp())
    with prepared(settings):
        peak = gemm_rate(min(time_rounds({"gemm": gemm()}, ROUNDS)["gemm"].cpu))
    versions.pop("plugins")
    return {**{name: machine[name] for name in FACTS}, **versions, "gemm_peak_gflops": peak}


def load() -> float | None:
    """Return the load average of the last minute; None where the system does not report it."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def load_warning(average: float | None) -> str | None:
    """Return a warning if other processes are at work."""
    if average is None or average < BUSY:
        return None
    return (
        f"the machine is busy (load {average:.1f}); other processes share caches and clock, "
        "which changes CPU times"
    )
