"""A planned run: one experiment of a sweep, how a worker must run it, and its present state."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mecheval.core.errors import StoreError
from mecheval.core.notebook import short
from mecheval.runs.experiment import Experiment
from mecheval.runs.files import Damaged, read_json
from mecheval.runs.lock import in_use
from mecheval.runs.pending import FAILED, PROGRESS, STOPPED, PendingRun

STATE = ("status", "reason", "steps", "speed", "attempts")  # fields that a worker does not need


@dataclass(frozen=True)
class Outcome:
    """A worker's answer.

    `done`, `diverged`, `error` and `timeout` are statuses of a run. `killed`: the worker died;
    `busy`: another process has the run; `stopped`: the worker received a signal; `paused`: it
    has reached the step `until` of the planned run.
    """

    status: str
    reason: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Outcome":
        return cls(**json.loads(text))


@dataclass
class PlannedRun:
    """One experiment of a sweep: `record` is its `experiment.json`, `out`/`name` its folder.

    `made_by` is everything that can change its bits: a worker with other versions refuses it.
    `status` is that of the run, or `waiting` or `running`; `speed` is in steps per second.
    """

    record: Mapping[str, Any]
    name: str
    out: str
    made_by: Mapping[str, Any]
    save_every: float = 30.0
    plugins: tuple[str, ...] = ()  # paths of files that a worker imports first
    timeout: float | None = None  # seconds
    until: int | None = None  # the step at which training pauses
    status: str = "waiting"
    reason: str | None = None
    steps: int = 0
    speed: float | None = None
    attempts: int = 0

    def __repr__(self) -> str:
        reason = f", {self.reason}" if self.reason else ""
        return short(f"PlannedRun({self.name!r}, {self.status}, {self.steps} steps{reason})")

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment; a third-party one needs its plug-ins to be loaded."""
        return Experiment.from_record(self.record)

    @cached_property
    def place(self) -> PendingRun:
        return PendingRun(Path(self.out) / self.name)

    @property
    def busy(self) -> bool:
        """True while a process works at the run, maybe one of another sweep."""
        return self.place.folder.is_dir() and in_use(self.place.folder)

    def update_progress(self) -> None:
        progress = read_progress(self.place.folder)
        self.steps = progress.get("steps", self.steps)
        self.speed = progress.get("speed", self.speed)

    def record_failure(self, outcome: Outcome) -> None:
        """Write into the run's folder why there is no run; ignore other outcomes.

        A folder that is damaged or made by other versions stays as it is. OS errors propagate:
        a full disk must end the sweep.
        """
        if outcome.status not in (STOPPED, *FAILED):
            return
        try:
            self.place.fail(self.record, self.made_by, outcome.status, outcome.reason or "")
        except StoreError as error:
            if isinstance(error.__cause__, OSError):
                raise

    def row(self) -> dict[str, Any]:
        """Return the state by column, as `Plan.states` does, with the total steps and the speed."""
        state = {"status": self.status, "steps": self.steps, "reason": self.reason}
        state |= {"speed": self.speed, "total": self.experiment.train.total, "until": self.until}
        return {**state, "folder": str(self.place.final), **self.record}

    def to_json(self) -> str:
        """Return the work without the state, for a worker."""
        fields = asdict(self)
        return json.dumps({name: fields[name] for name in fields if name not in STATE})

    @classmethod
    def from_json(cls, text: str) -> "PlannedRun":
        fields = json.loads(text)
        return cls(**{**fields, "plugins": tuple(fields["plugins"])})


def read_progress(folder: Path) -> dict[str, Any]:
    """Return `steps`, `total` and `speed` as a worker wrote them; nothing if there are none yet."""
    try:
        progress = read_json(folder / PROGRESS)
        numbers = {"steps": int(progress["steps"]), "total": int(progress["total"])}
        return {**numbers, "speed": float(progress["speed"])}
    except (Damaged, KeyError, TypeError, ValueError):
        return {}
