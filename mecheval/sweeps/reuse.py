"""Runs of other folders that are the very ones a sweep wants: figures share many experiments."""

from collections.abc import Sequence
from pathlib import Path

from mecheval.runs.finished import Run
from mecheval.runs.pending import PendingRun
from mecheval.sweeps.state import State


def take_over(states: Sequence[State], folders: Sequence[Path]) -> None:
    """Copies what is offered into the sweep's folder. Each file is compared with its checksum on the way."""
    for state in states:
        if found := offered(state, folders):
            state.job.place.receive(found.files())
            state.status, state.steps = found.status, found.outcome["steps"]


def offered(state: State, folders: Sequence[Path]) -> Run | None:
    """A finished run of the experiment that waits, made in the same way."""
    if state.status != "waiting":
        return None
    runs = (PendingRun(folder / state.job.name).finished for folder in folders)
    return next((found for found in runs if found and _same(found, state)), None)


def _same(found: Run, state: State) -> bool:
    return found.record == state.job.record and found.provenance["made_by"] == state.job.made
