"""A sweep: run every experiment that is not finished, and return the state of each.

Workers are processes of this machine or a Ray cluster; a run whose worker died is tried once more.
"""

import logging
import random
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol, runtime_checkable

from mecheval.core.errors import Interrupted, InvalidInput
from mecheval.core.plugin_files import checksums, isolated_plugins
from mecheval.plugins import defined_classes, load_plugin
from mecheval.results.plan import FINISHED, Plan
from mecheval.results.table import Results
from mecheval.runs.experiment import Experiment, Settings
from mecheval.runs.finished import Run
from mecheval.runs.lock import locked
from mecheval.runs.pending import FAILED, STOPPED, check_same
from mecheval.runs.progress import sweep_progress
from mecheval.runs.provenance import made_by
from mecheval.sweeps.in_process import InProcess
from mecheval.sweeps.local import Local
from mecheval.sweeps.options import SweepOptions
from mecheval.sweeps.planned import Outcome, PlannedRun, read_progress
from mecheval.sweeps.reuse import reuse_runs
from mecheval.sweeps.worker import interruptible

logger = logging.getLogger("mecheval")
AGAIN = (STOPPED, *FAILED)  # what `retry` runs
OPEN = ("waiting", "running", "damaged", *AGAIN)
ATTEMPTS = 2  # of a run whose worker is killed
TICK_SECONDS = 0.1
Runs = Sequence[PlannedRun]
Watch = Callable[[Runs], None]


@runtime_checkable
class Executor(Protocol):
    """Executes planned runs: processes of this machine, or a Ray cluster."""

    @property
    def free(self) -> int:
        """The number of runs it can start now."""
        ...

    def start(self, run: PlannedRun) -> None: ...

    def ended(self) -> Iterator[tuple[PlannedRun, Outcome]]:
        """Yield the runs that have ended since the last call."""
        ...

    def stop(self) -> None:
        """Let every run in progress save and stop."""
        ...


@dataclass(frozen=True)
class Sweep:
    """The experiments of a recipe at a scale, without duplicates, with all runs in one folder."""

    experiments: Sequence[Experiment]
    folder: Path
    recipe: str
    scale: str
    options: SweepOptions

    def __post_init__(self) -> None:
        unique = {experiment.key: experiment for experiment in self.experiments}
        object.__setattr__(self, "experiments", list(unique.values()))
        if not unique:
            problem = f"recipe {self.recipe!r} yields no experiments at scale {self.scale!r}"
            raise InvalidInput(problem)
        self.plan.check_folder(self.folder)

    @classmethod
    def read(cls, folder: Path, options: SweepOptions) -> "Sweep":
        """Read the sweep that was planned in a folder."""
        plan = Plan.require(folder)
        experiments = [Experiment.from_record(record) for record in plan.experiments]
        return cls(experiments, folder, plan.recipe, plan.scale, options)

    @cached_property
    def plan(self) -> Plan:
        records = tuple(experiment.record() for experiment in self.experiments)
        names = tuple(experiment.name for experiment in self.experiments)
        return Plan(self.recipe, self.scale, records, names)

    def runs(self) -> list[PlannedRun]:
        """Return every run in its present state; refuse finished ones of other versions."""
        for path in self.options.plugins:
            load_plugin(path)
        settings = Settings(device=self.options.device, plugins=checksums())
        machine = settings.device, settings.threads, settings.plugins
        folder, save_every = str(self.folder.resolve()), self.options.save_every
        plugins = tuple(str(Path(path).resolve()) for path in self.options.plugins)
        runs = []
        for experiment, record in zip(self.experiments, self.plan.experiments, strict=True):
            made = made_by(*machine, experiment.model.packages)
            how = (folder, made, save_every, plugins, self.options.timeout)
            run = PlannedRun(record, experiment.name, *how)
            run.experiment = experiment
            runs.append(run)
        if self.folder.is_dir():
            for run, state in zip(runs, self.plan.states(Results(self.folder)), strict=True):
                run.status, run.reason = state["status"], state["reason"]
                run.steps = state["steps"] or 0
                if run.status in FINISHED:
                    final = run.place.final
                    provenance = Run(final).provenance
                    check_same(final, provenance["made_by"], run.made_by)
                    run.speed = run.steps / max(float(provenance.get("wall_seconds", 0)), 1e-3)
                elif run.status != "waiting":
                    run.speed = read_progress(run.place.folder).get("speed")
        return runs

    def execute(
        self,
        executor: Callable[[], Executor],
        only: Sequence[str] = OPEN,
        watch: Watch = lambda runs: None,
        keys: Collection[str] | None = None,
        until: int | None = None,
    ) -> list[PlannedRun]:
        """Execute the runs whose status is in `only`; return all runs.

        `keys` limits this to some experiments; with `until` their training pauses at that step.
        `executor` is called if there is something to do, `watch` several times a second. After an
        interruption everything is saved, and the same call resumes.
        """
        with locked(self.folder):
            runs = self.runs()
            todo = [run for run in runs if run.status in only]
            if keys is not None:
                todo = [run for run in todo if run.record["key"] in keys]
            for run in todo:
                run.until = until
            if self.options.shuffle is not None:
                random.Random(self.options.shuffle).shuffle(todo)
            workers = executor() if todo else None
            self.plan.write(self.folder)
            reuse_runs(todo, self.options.reuse)
            todo = [run for run in todo if run.status in only]
            if workers:
                with interruptible():
                    _execute(todo, runs, workers, watch)
        return runs


def sweep(
    experiments: Sequence[Experiment],
    out: str | Path,
    options: SweepOptions = SweepOptions(),  # noqa: B008, it is frozen
    recipe: str = "experiments",
    scale: str = "own",
    watch: Watch | None = None,
    progress: bool | None = None,
) -> list[PlannedRun]:
    """Run the experiments that are not finished, by processes of this machine; return all runs.

    With an architecture that was given as a class, for example one defined in a notebook, which
    other processes cannot import, all runs are trained one after another in this process.

    Parameters
    ----------
    experiments
        The experiments; duplicates run once.
    out
        The folder of all runs.
    options
        Workers, timeout, plug-ins.
    recipe
        A name for the record.
    scale
        Another one.
    watch
        Called with all runs several times a second.
    progress
        Show a line that updates: in a notebook unless it is False, in a terminal if it is True.

    Returns
    -------
    list of PlannedRun
        Every run with its state; failed ones are kept.

    Examples
    --------
    >>> from mecheval import EvalConfig, Experiment, ModelConfig, Recall, SweepOptions, TrainConfig
    >>> from mecheval import sweep
    >>> experiment = Experiment(
    ...     task=Recall(pairs=2, vocab=8),
    ...     model=ModelConfig("attention", d_model=8),
    ...     train=TrainConfig(documents=0, steps=4),
    ...     eval=EvalConfig(documents=16, every=2, grid_documents=16),
    ... )
    >>> [run.status for run in sweep([experiment], "swept", SweepOptions(workers=1))]
    ['done']
    """
    planned = Sweep(experiments, Path(out), recipe, scale, options)
    options.check_device()
    watch = watch or sweep_progress(progress)
    defined = _defined_here(experiments)
    if not defined:
        return planned.execute(lambda: Local(options.workers), watch=watch)
    with isolated_plugins({**checksums(), **defined}):
        return planned.execute(InProcess, watch=watch)


def _defined_here(experiments: Sequence[Experiment]) -> dict[str, str]:
    """Return checksums of the classes that no worker can import, and log where they are."""
    defined: dict[str, str] = {}
    for experiment in experiments:
        for name, (checksum, place) in defined_classes(experiment.model).items():
            if name not in defined:
                alone = "all runs are trained one after another in this process"
                logger.warning("%s is defined in %s: %s", name, place, alone)
            defined[name] = checksum
    return defined


def _execute(todo: Runs, runs: Runs, executor: Executor, watch: Watch) -> None:
    for run in todo:
        run.status, run.reason = "waiting", None
    try:
        while any(run.status in ("waiting", "running") for run in todo):
            for run, outcome in executor.ended():
                _apply(run, outcome)
            for run in todo:
                _advance(run, executor)
            watch(runs)
            time.sleep(TICK_SECONDS)
    except KeyboardInterrupt as error:
        finished = sum(run.status in FINISHED for run in runs)
        count = f"{finished} of {len(runs)} runs are finished, the others are saved"
        number = getattr(error, "number", signal.SIGINT)
        raise Interrupted(f"{error}: {count}; rerun the same command to resume", number) from error
    finally:
        executor.stop()
        watch(runs)


def _advance(run: PlannedRun, executor: Executor) -> None:
    if run.status == "running":
        run.update_progress()
    elif run.status == "waiting" and executor.free > 0 and not run.busy:
        run.status, run.attempts = "running", run.attempts + 1
        executor.start(run)


def _apply(run: PlannedRun, outcome: Outcome) -> None:
    status = outcome.status
    if status == "busy":  # another process was faster
        run.status, run.attempts = "waiting", run.attempts - 1
    elif status in ("killed", STOPPED) and run.attempts < ATTEMPTS:
        run.status = "waiting"
    else:
        run.record_failure(Outcome(status, outcome.reason))
        run.status, run.reason = status, outcome.reason
    if status in FINISHED:
        finished = Run(run.place.final).outcome
        run.steps, run.reason = finished["steps"], finished.get("reason")
