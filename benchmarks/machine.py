"""The machine and how busy it is: what a ratio is true of."""

import os
from typing import Any

from benchmarks.flops import gemm, gemm_rate
from benchmarks.measure import interleaved
from mecheval.runs.experiment import Settings
from mecheval.runs.fit import prepared
from mecheval.runs.provenance import Clock, made_by, provenance, timestamp

FACTS = ("processor", "cores", "system", "python", "commit", "started")
ROUNDS = 9
BUSY = 0.5  # processes at work before the first measurement, as the last minute's load says


def facts() -> dict[str, Any]:
    """Hardware and versions, one thread without denormals as a run has it, and the rate of a large product there."""
    settings = Settings()
    made = made_by(settings.device, settings.threads, {})
    found = provenance(made, Clock(), timestamp())
    with prepared(settings):
        peak = gemm_rate(min(interleaved({"gemm": gemm()}, ROUNDS)["gemm"].cpu))
    made.pop("plugins")
    return {**{name: found[name] for name in FACTS}, **made, "gemm_peak_gflops": peak}


def load() -> float | None:
    """How many processes wanted to work in the last minute; None where nobody counts."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def warning(found: float | None) -> str | None:
    """If something else is at work."""
    if found is None or found < BUSY:
        return None
    return f"the machine is busy (load {found:.1f}): CPU times are kept apart, but caches and clocks are shared"
