"""Writes run folders and sweeps with the numbers that a test needs, without any training."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mecheval.metrics.measurement import Measurement
from mecheval.results.plan import Plan
from mecheval.runs.experiment import Experiment
from mecheval.runs.pending import PendingRun

MADE = {"mecheval": "0", "torch": "0", "device": "cpu", "threads": 1, "plugins": {}}
PROVENANCE = {
    "made_by": MADE,
    "started": "2026-01-01T00:00:00Z",
    "finished": "2026-01-01T00:01:00Z",
}
PROVENANCE |= {
    "wall_seconds": 60.0,
    "cpu_seconds": 58.0,
    "sessions": 1,
    "peak_memory_bytes": 400_000_000,
}
PROVENANCE |= {
    "python": "3.11",
    "system": "Linux",
    "processor": "by hand",
    "cores": 2,
    "commit": None,
}
SITE = "blocks.1.block_in"


def experiment(
    architecture: str = "attention", lr: float = 1e-3, seed: int = 0, **fields: Any
) -> Experiment:
    own = {
        "task": "recall:pairs=4,vocab=64",
        "model.architecture": architecture,
        "train.lr": lr,
        "seed": seed,
    }
    own |= {"model.d_model": 64, "model.layers": 2, "train.steps": 100, "train.batch": 8}
    return Experiment.of(own | {name.replace("__", "."): value for name, value in fields.items()})


def row(
    metric: str, value: float, split: str = "test", half: float = 0.02, **other: Any
) -> dict[str, Any]:
    found = {
        "metric": metric,
        "value": value,
        "low": value - half,
        "high": value + half,
        "n": 320,
        "split": split,
    }
    return Measurement(**{"step": 100, **found, **other}).to_dict()


def behaviour(dev: float, test: float) -> list[dict[str, Any]]:
    found = [
        row(metric, value, split)
        for metric in ("accuracy", "likelihood")
        for split, value in (("dev", dev), ("test", test))
    ]
    return [*found, row("loss", 1 - dev, "dev"), row("loss", 1 - test)]


def grid(
    clean: float, corrupt: float, shares: Mapping[str, float], site: str = SITE, **other: Any
) -> list[dict[str, Any]]:
    """Return the rows of a grid; `shares` are what each role restores of what was lost."""
    ends = [
        row("likelihood", value, corrupted="key", condition=name, **other)
        for name, value in (("clean", clean), ("corrupt", corrupt))
    ]
    place = {
        "corrupted": "key",
        "condition": "restored",
        "site": site,
        "layer": int(site.split(".")[1]),
        **other,
    }
    back = [
        row("likelihood", corrupt + share * (clean - corrupt), role=role, **place)
        for role, share in shares.items()
    ]
    return ends + back + [row("share", share, role=role, **place) for role, share in shares.items()]


def verdict(mechanism: str = "induction", **other: Any) -> dict[str, Any]:
    found = {
        "mechanism": mechanism,
        "layer": 1,
        "role": "value",
        "convolution": None,
        "confidence": 0.98,
    }
    return {**found, "layer_confidence": 0.9, "evidence": {}, "thresholds": {}, **other}


def finished(
    folder: Path,
    experiment: Experiment,
    rows: Sequence[Mapping[str, Any]] = (),
    status: str = "done",
    reason: str | None = None,
    said: Mapping[str, Any] | None = None,
    curve: Sequence[Mapping[str, Any]] = (),
    provenance: Mapping[str, Any] = PROVENANCE,
) -> None:
    place = PendingRun(folder / experiment.name)
    outcome = {"status": status, "key": experiment.key, "steps": 100, "reason": reason}
    records = {"status": outcome, "provenance": provenance} | ({"verdict": said} if said else {})
    with place.claim():
        place.begin(experiment.record(), MADE)
        place.finish(records, {"rows": list(rows), "curve": list(curve)}, {})


def planned(
    folder: Path, recipe: str, experiments: Sequence[Experiment], scale: str = "quick"
) -> None:
    fields = tuple(experiment.record() for experiment in experiments)
    folder.mkdir(parents=True, exist_ok=True)
    Plan(recipe, scale, fields, tuple(experiment.name for experiment in experiments)).write(folder)


def sweep(
    folder: Path, recipe: str, experiments: Sequence[Experiment], rows: Callable[[Experiment], Any]
) -> Path:
    """Write a sweep whose runs are all done."""
    planned(folder, recipe, experiments)
    for one in experiments:
        finished(folder, one, rows(one), said=verdict())
    return folder
