"""How an experiment of a sweep stands."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mecheval.runs.experiment import Experiment
from mecheval.runs.files import Damaged, read_json
from mecheval.runs.pending import PROGRESS, in_use
from mecheval.sweeps.job import Job


@dataclass
class State:
    """`status` is that of its run, `waiting` or `running`; `speed` is in steps a second."""

    job: Job
    experiment: Experiment
    status: str
    reason: str | None = None
    steps: int = 0
    speed: float | None = None
    attempts: int = 0

    @property
    def busy(self) -> bool:
        """Whether a process works at its run, maybe not one of ours."""
        folder = self.job.place.folder
        return folder.is_dir() and in_use(folder)

    def look(self) -> None:
        told = progress(self.job.place.folder)
        self.steps, self.speed = told.get("steps", self.steps), told.get("speed", self.speed)

    def to_dict(self) -> dict[str, Any]:
        """As `Plan.states` has it, with the steps it will take and how fast."""
        found = {"status": self.status, "steps": self.steps, "reason": self.reason, "speed": self.speed}
        found |= {"total": self.experiment.train.total, "folder": str(self.job.place.final)}
        return {**found, "key": self.experiment.key, **self.job.experiment}


def progress(folder: Path) -> dict[str, Any]:
    """`steps`, `total` and `speed` as a worker tells them; nothing if it has not begun, or works elsewhere."""
    try:
        told = read_json(folder / PROGRESS)
        return {"steps": int(told["steps"]), "total": int(told["total"]), "speed": float(told["speed"])}
    except (Damaged, KeyError, TypeError, ValueError):
        return {}
