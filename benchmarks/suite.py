"""The whole benchmark: parts, measured one after another, as one record."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Any

from benchmarks.floors import floor_of
from benchmarks.line import Job
from benchmarks.size import Size
from mecheval.core.errors import InvalidInput
from mecheval.core.options import did_you_mean

PARTS = {
    "documents": "drawing documents, against plain generators",
    "steps": "train steps, against the plain form, rivals and the machine's limit",
    "ops": "scan, delta rule and convolutions alone",
    "evaluation": "evaluating, against all logits",
    "interventions": "a grid of interventions, against pyvene",
    "startup": "the command line, against importing torch",
    "checkpoint": "saving, as a share of training",
    "sweep": "two workers against one; resuming a long sweep",
    "memory": "peak memory of a train step, against the plain form",
    "growth": "exponents of time and memory in length, batch, vocabulary and width",
}
GUARD = {"guard": "a minute of ratios that fall when an optimisation is lost; exit 1 if one has"}
Record = dict[str, Any]
Watch = Callable[
    [str, int | float, int | float], None
]  # what is measured now, and the weights of what is done and of all


def named(parts: Sequence[str]) -> list[str]:
    """All but the guard, if none is named; each once, in the order of the suite."""
    known = {**PARTS, **GUARD}
    if wrong := [part for part in parts if part not in known]:
        raise InvalidInput(f"PART={part!r}: no such part{did_you_mean(part, known)}" for part in wrong)
    return [part for part in known if part in (parts or PARTS)]


def measure(parts: Sequence[str], size: Size, watch: Watch = lambda what, done, total: None) -> Record:
    """Every part's lines with their floors, and the machine they are true of."""
    from benchmarks.machine import facts, load

    busy = load()
    modules = {part: import_module(f"benchmarks.{part}") for part in parts}
    jobs: dict[str, list[Job]] = {part: list(module.jobs(size)) for part, module in modules.items()}
    total, done = sum(job.weight for own in jobs.values() for job in own), 0.0
    watch("the machine", done, total)
    found: Record = {"machine": {**facts(), "load": busy}, "size": asdict(size), "parts": {}}
    for part, own in jobs.items():
        lines: list[Record] = []
        for job in own:
            watch(f"{part}: {job.name}", done, total)
            lines += [line.record(floor_of(part, line.what, line.against)) for line in job.run()]
            done += job.weight
        found["parts"][part] = {"caption": modules[part].CAPTION, "lines": lines}
    watch("everything is measured", total, total)
    return found


def missed(record: Record) -> list[str]:
    """A sentence for every ratio that does not keep its floor."""
    return [
        f"{part}: {line['what']} against {line['against']} is {line['ratio']:.3g}, and must be "
        f"{line['floor']['sense']} {line['floor']['value']:g}"
        for part, found in record["parts"].items()
        for line in found["lines"]
        if line["verdict"] not in ("ok", None)
    ]
