"""Copy finished runs of the same experiments from other folders: figures share many experiments."""

from collections.abc import Sequence
from pathlib import Path

from mecheval.runs.finished import Run
from mecheval.runs.pending import PendingRun
from mecheval.sweeps.planned import PlannedRun


def reuse_runs(runs: Sequence[PlannedRun], folders: Sequence[Path]) -> None:
    """Copy what the folders offer into the sweep's; every file is compared with its checksum."""
    for run in runs:
        if match := find_reusable(run, folders):
            run.place.receive(match.files())
            run.status, run.steps = match.status, match.outcome["steps"]


def find_reusable(run: PlannedRun, folders: Sequence[Path]) -> Run | None:
    """Return a finished run of the waiting experiment that was made in the same way."""
    if run.status != "waiting":
        return None
    for folder in folders:
        match = PendingRun(folder / run.name).finished
        if match and match.record == run.record and match.provenance["made_by"] == run.made_by:
            return match
    return None
