"""Provide sizes so small that every part takes seconds, and an invented record."""

import pytest

from benchmarks.measure import Times
from benchmarks.ratio import Floor, Line
from benchmarks.size import Size

TINY = Size(
    rounds=1,
    architectures=("attention", "mamba"),
    newer=("hgrn2", "rg_lru"),
    newer_grown=("rg_lru", "attention:window=8"),
    newer_guarded=("gated_delta_net",),
    batch=2,
    pairs=4,
    vocab=32,
    widths=(8,),
    width=8,
    max_len=64,
    drawn=64,
    slowly=2,
    evaluated=8,
    grid=2,
    grid_task="recall:pairs=3,vocab=16",
    models=2,
    steps=2,
    resumed="quick",
    card_steps=4,
    lengths=(16, 32),
    batches=(1, 2),
    vocabularies=(32, 64),
    grown_widths=(8, 16),
)


@pytest.fixture
def tiny():
    return TINY


@pytest.fixture
def record():
    """Return a record of three lines: one meets its floor, one misses it, one was skipped."""
    times = Times((1.0, 2.0, 4.0), (1.0, 2.0, 4.0)).spreads()
    reason = "skipped: mambapy | is not installed"
    lines = [
        Line("attention d=64", "plain", 21.5, "×", 20.0, 24.0, times, times).record(Floor(14)),
        Line("mamba d=64", "plain", 3.25, "×", 3.0, 3.5, times, times).record(Floor(40)),
        Line("mamba d=64", "mambapy's scan", None, note=reason).record(Floor(20)),
    ]
    facts = {
        "processor": "a processor",
        "cores": 2,
        "threads": 1,
        "torch": "2",
        "numba": "0",
        "python": "3",
        "flush_denormal": True,
        "gemm_peak_gflops": 100.0,
        "started": "2030-01-01T00:00:00Z",
        "load": 0.1,
    }
    parts = {"steps": {"caption": "Steps.", "lines": lines}}
    return {"machine": facts, "size": {"rounds": 3}, "parts": parts}
