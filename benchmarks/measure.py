"""Interleaved rounds of CPU time: every contestant in every round, the median and the spread of each.

A contestant runs twice in a round and the second time counts: the first has the heap that the one before it left.
"""

import statistics
import time
from collections.abc import Callable, Mapping


def milliseconds(contestants: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, dict[str, float]]:
    for run in contestants.values():
        run()  # compile, and fill the caches
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            run()
            start = time.process_time()
            run()
            times[name].append((time.process_time() - start) * 1e3)
    return {
        name: {"median": statistics.median(found), "least": min(found), "most": max(found)}
        for name, found in times.items()
    }
