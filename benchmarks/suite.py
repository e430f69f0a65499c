"""Measure the parts of the benchmark one after another, and save each when it is done."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.floors import floor_of
from benchmarks.ratio import Job
from benchmarks.size import Size
from mecheval.core.errors import InvalidInput
from mecheval.core.options import did_you_mean
from mecheval.runs.files import Damaged, read_json, write_json

PARTS = {
    "documents": "drawing documents, against plain generators",
    "steps": "train steps, against the plain form, rivals and the machine's limit",
    "ops": "scan, delta rule and convolutions alone",
    "evaluation": "evaluation of a model, against all logits",
    "interventions": "a grid of interventions, against pyvene",
    "startup": "the command line, against importing torch",
    "checkpoint": "saving, as a share of training",
    "sweep": "two workers against one; resuming a long sweep",
    "card": "the first card of a mixer, against one training run",
    "memory": "peak memory of a train step, against the plain form",
    "growth": "exponents of time and memory in length, batch, vocabulary and width",
}
GUARD = {"guard": "ratios that fall when an optimisation is lost, in a minute; exit 1 if one did"}
Record = dict[str, Any]
Watch = Callable[[str, int | float, int | float], None]  # name, weight done, weight of all


def select_parts(parts: Sequence[str]) -> list[str]:
    """Return the named parts in the order of the suite, or all but the guard."""
    known = {**PARTS, **GUARD}
    if unknown := [part for part in parts if part not in known]:
        raise InvalidInput(f"no part {part!r}{did_you_mean(part, known)}" for part in unknown)
    return [part for part in known if part in (parts or PARTS)]


def measure(
    parts: Sequence[str],
    size: Size,
    watch: Watch = lambda name, done, total: None,
    partial: Path | None = None,
) -> Record:
    """Measure every part; with `partial`, save after each and skip those that are in the file.

    A file of another machine, version or size is replaced.
    """
    from benchmarks.machine import facts, load

    record: Record = {"machine": {**facts(), "load": load()}, "size": asdict(size), "parts": {}}
    if partial and (earlier := _read_partial(partial, record)):
        record = earlier
    modules = {part: import_module(f"benchmarks.{part}") for part in parts}
    jobs: dict[str, list[Job]] = {}
    for part, module in modules.items():
        if part not in record["parts"]:
            jobs[part] = list(module.jobs(size))
    total = sum(job.weight for part_jobs in jobs.values() for job in part_jobs)
    done = 0.0
    for part, part_jobs in jobs.items():
        lines: list[Record] = []
        for job in part_jobs:
            watch(f"{part}: {job.name}", done, total)
            lines += [line.record(floor_of(part, line.what, line.against)) for line in job.run()]
            done += job.weight
        record["parts"][part] = {"caption": modules[part].CAPTION, "lines": lines}
        if partial:
            write_json(partial, record)
    watch("all parts are measured", total, total)
    record["parts"] = {part: record["parts"][part] for part in parts}
    return record


def _read_partial(path: Path, record: Record) -> Record | None:
    """Return the parts measured before, if machine, versions and size are the same."""
    try:
        earlier = read_json(path)
        size = json.loads(json.dumps(record["size"]))  # as in the file, where tuples are lists
        same = earlier["size"] == size and _fixed_facts(earlier) == _fixed_facts(record)
        return earlier if same else None
    except (Damaged, KeyError, TypeError, AttributeError):
        return None


def _fixed_facts(record: Record) -> Record:
    changing = ("started", "load", "gemm_peak_gflops")
    return {name: value for name, value in record["machine"].items() if name not in changing}


def missed_floors(record: Record) -> list[str]:
    """Return a sentence for every ratio that misses its floor."""
    return [
        f"{part}: {line['what']} against {line['against']} is {line['ratio']:.3g}; it must be "
        f"{line['floor']['sense']} {line['floor']['value']:g}"
        for part, results in record["parts"].items()
        for line in results["lines"]
        if line["verdict"] not in ("ok", None)
    ]
