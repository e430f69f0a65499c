"""What a worker is asked, and what it answers: plain JSON, whoever carries it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mecheval.core.errors import StoreError
from mecheval.runs.experiment import Experiment
from mecheval.runs.pending import FAILED, PendingRun


@dataclass(frozen=True)
class Job:
    """One experiment by its fields, and where its run is to be. `made` is what could change its bits: a worker that
    would make it otherwise refuses."""

    experiment: Mapping[str, Any]
    name: str
    out: str
    made: Mapping[str, Any]
    save_every: float = 30.0
    plugins: tuple[str, ...] = ()  # paths of files that are run first
    timeout: float | None = None  # seconds

    @property
    def place(self) -> PendingRun:
        return PendingRun(Path(self.out) / self.name)

    @property
    def record(self) -> dict[str, Any]:
        """What the run's `experiment.json` says."""
        return Experiment.of(self.experiment).record()

    def keep(self, outcome: "Outcome") -> None:
        """Why there is no run, in its folder. A folder that is damaged or another's says enough; a full disk is
        everybody's matter."""
        if outcome.status not in FAILED:
            return
        try:
            self.place.fail(self.record, self.made, outcome.status, outcome.reason or "")
        except StoreError as error:
            if isinstance(error.__cause__, OSError):
                raise

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Job":
        record = json.loads(text)
        return cls(**{**record, "plugins": tuple(record["plugins"])})


@dataclass(frozen=True)
class Outcome:
    """`done diverged error timeout` as a run has them; `killed` if the worker died without a word, `busy` if another
    process works at the run, `stopped` if the worker was told to."""

    status: str
    reason: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Outcome":
        return cls(**json.loads(text))
