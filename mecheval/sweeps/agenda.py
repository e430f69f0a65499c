"""What a sweep is to do, and where: the plan, a job for each experiment, and how each stands now."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from mecheval.core.errors import InvalidInput
from mecheval.core.options import validate
from mecheval.plugins import checksums, load_plugin
from mecheval.results.plan import FINISHED, Plan
from mecheval.results.table import Results
from mecheval.runs.experiment import Experiment, Settings
from mecheval.runs.finished import Run
from mecheval.runs.pending import check_same
from mecheval.runs.provenance import made_by
from mecheval.sweeps.job import Job
from mecheval.sweeps.state import State


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """How a sweep is carried out. None of it changes a row."""

    workers: Annotated[int, Field(ge=1, le=4096, description="runs at once")] = field(default_factory=cores)
    timeout: Annotated[float | None, Field(gt=0, description="seconds a run may take; left out: any")] = None
    save_every: Annotated[float, Field(ge=0, description="seconds between checkpoints")] = 30.0
    shuffle: Annotated[int | None, Field(ge=0, description="seed of the order in which runs start")] = None
    plugins: tuple[str, ...] = ()  # paths of files that every worker runs first
    reuse: tuple[Path, ...] = ()  # folders whose runs are taken over where they are the same

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if name not in ("plugins", "reuse")}
        validate(type(self), given, given=("plugins", "reuse"))
        if missing := [folder for folder in self.reuse if not folder.is_dir()]:
            raise InvalidInput(f"reuse={str(missing[0])!r} must be a folder with runs")


@dataclass(frozen=True)
class Agenda:
    """The experiments, each once, of a recipe at a scale; all their runs are in one folder."""

    experiments: Sequence[Experiment]
    folder: Path
    recipe: str
    scale: str
    options: SweepOptions

    def __post_init__(self) -> None:
        object.__setattr__(self, "experiments", list({each.key: each for each in self.experiments}.values()))
        if not self.experiments:
            raise InvalidInput(f"{self.recipe} at scale {self.scale} must have experiments; there are none")
        self.plan.must_fit(self.folder)

    @classmethod
    def of(cls, folder: Path, options: SweepOptions) -> "Agenda":
        """As it was planned in a folder."""
        plan = Plan.read(folder)
        if plan is None:
            raise InvalidInput(f"DIR={str(folder)!r} must be the folder of a sweep; it has no plan")
        experiments = [Experiment.from_record(each) for each in plan.experiments]
        return cls(experiments, folder, plan.recipe, plan.scale, options)

    @cached_property
    def plan(self) -> Plan:
        fields = tuple(each.record() for each in self.experiments)
        return Plan(self.recipe, self.scale, fields, tuple(each.name for each in self.experiments))

    @cached_property
    def jobs(self) -> list[Job]:
        for path in self.options.plugins:
            load_plugin(path)
        settings = Settings(plugins=checksums())
        made = made_by(settings.device, settings.threads, settings.plugins)
        paths = tuple(str(Path(path).resolve()) for path in self.options.plugins)
        out, asked = str(self.folder.resolve()), self.options
        return [
            Job(each.fields(), each.name, out, made, asked.save_every, paths, asked.timeout)
            for each in self.experiments
        ]

    def states(self) -> list[State]:
        """Now, in a folder that may not be there yet. Runs that were made with other versions are refused."""
        found: Sequence[Mapping[str, Any]] = [{"status": "waiting", "reason": None, "steps": 0}] * len(self.jobs)
        if self.folder.is_dir():
            found = self.plan.states(Results(self.folder))
        for job, run in zip(self.jobs, found, strict=True):
            if run["status"] in FINISHED:
                check_same(job.place.final, Run(job.place.final).provenance["made_by"], job.made)
        return [
            State(job, experiment, run["status"], run["reason"], run["steps"] or 0)
            for job, experiment, run in zip(self.jobs, self.experiments, found, strict=True)
        ]
