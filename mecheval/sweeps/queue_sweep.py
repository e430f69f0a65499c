"""The runs of a queue as one sweep: each is kept as soon as it has finished."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from mecheval.results.plan import FINISHED, Plan
from mecheval.sweeps.options import SweepOptions
from mecheval.sweeps.planned import PlannedRun
from mecheval.sweeps.queue import Queue
from mecheval.sweeps.sweep import Executor, Runs, Sweep

RECIPE, SCALE = "queue", "several"  # in the plan of the folder


@runtime_checkable
class Watch(Protocol):
    """Shows the runs that it is called with, and says a line."""

    def __call__(self, runs: Sequence[PlannedRun]) -> None: ...

    def say(self, text: str) -> None: ...


def sweep_of(queue: Queue, folder: Path, options: SweepOptions) -> Sweep | None:
    """Return the sweep of what is not kept yet, or None if everything is."""
    todo = queue.todo
    return Sweep(todo, folder, RECIPE, SCALE, options) if todo else None


def is_of_queue(plan: Plan) -> bool:
    return (plan.recipe, plan.scale) == (RECIPE, SCALE)


def execute(
    queue: Queue,
    sweep: Sweep,
    executor: Callable[[], Executor],
    only: Collection[str],
    watch: Watch,
) -> list[PlannedRun]:
    """Execute the runs in the order of their studies, and keep each study as it grows.

    After an interruption everything is saved and kept, and the same call resumes.
    """
    keeper = _Keeper(queue, watch)
    runs = sweep.execute(executor, list(only), keeper.keep_and_show)
    keeper.keep(runs)  # all had finished before, in a process that was killed before it kept them
    return runs


class _Keeper:
    """Keeps runs that have finished, and shows those of the studies at work."""

    def __init__(self, queue: Queue, watch: Watch) -> None:
        self._queue, self._watch = queue, watch
        self._begun, self._done = False, set[str]()
        self._shown: set[str] = set()  # names of studies
        self._study_of: dict[str, str] = {}  # the first that wants a run, by its key
        for study in reversed(queue.studies):
            self._study_of |= dict.fromkeys(study.keys, study.name)

    def keep_and_show(self, runs: Runs) -> None:
        self.keep(runs)
        working = {self._study_of[_key(run)] for run in runs if run.status == "running"}
        for study in self._queue.studies:
            if study.name in working - self._shown:
                self._watch.say(f"{study.name}, {self._count(study.name)}: {study.why}")
        # a study whose last run has just ended is shown once more
        names = working | self._shown
        self._watch([run for run in runs if self._study_of[_key(run)] in names])
        self._shown = working or self._shown

    def keep(self, runs: Runs) -> None:
        """Keep what has finished since the last call; after an error the next call tries again."""
        ended = {_key(run): run.place.final for run in runs if run.status in FINISHED}
        new = {key: folder for key, folder in ended.items() if key not in self._done}
        if new or not self._begun:  # other studies may have all runs of one
            for name in self._queue.keep(new):
                self._watch.say(f"kept {self._queue.path.parent / name}: {self._count(name)}")
            self._begun, self._done = True, self._done | new.keys()

    def _count(self, name: str) -> str:
        (study, *_) = [study for study in self._queue.studies if study.name == name]
        return f"{self._queue.count(study)} of {len(study.experiments)} runs kept"


def _key(run: PlannedRun) -> str:
    return str(run.record["key"])
