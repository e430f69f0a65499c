"""The runs of a card in one folder, planned step by step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from mecheval.cards.search import Stopped, read_stopped, write_stopped
from mecheval.cards.subject import Subject
from mecheval.core.plugin_files import isolated_plugins
from mecheval.results.plan import Plan
from mecheval.runs.experiment import Experiment
from mecheval.runs.pending import STOPPED
from mecheval.sweeps.in_process import InProcess
from mecheval.sweeps.options import SweepOptions
from mecheval.sweeps.planned import PlannedRun
from mecheval.sweeps.sweep import Executor, Sweep, Watch

RECIPE = "card"


class RunFolder:
    """Runs of a card in one folder, planned step by step.

    `always` are planned from the start, others when they are asked for; runs that an earlier
    process began stay planned. `requested` has the keys of all experiments asked for.
    """

    def __init__(
        self,
        folder: Path,
        scale: str,
        runner: Subject,
        options: SweepOptions,
        always: list[Experiment],
    ) -> None:
        self.folder, self._scale, self._runner = folder, scale, runner
        self._options = replace(options, plugins=runner.plugins)
        self._planned = {one.key: one for one in [*always, *self._begun()]}
        self.requested: dict[str, Experiment] = {}
        self._tried: set[str] = set()
        self.stopped = read_stopped(folder)

    def runs(self, experiments: Sequence[Experiment]) -> list[PlannedRun]:
        """Return experiments in their present state; refuse finished runs of other versions."""
        with isolated_plugins(self._runner.checksums):
            return self._sweep(experiments).runs()

    def missing(self, experiments: Sequence[Experiment]) -> list[Experiment]:
        """Return those that are not finished."""
        return [one for one in experiments if not (self.folder / one.name).exists()]

    def execute(
        self, experiments: Sequence[Experiment], watch: Watch, until: int | None = None
    ) -> bool:
        """Train what is not finished, and return whether there was anything to do.

        What failed is not tried again by the same process. With `until`, training pauses there.
        """
        self.requested |= {one.key: one for one in experiments}
        todo = [one for one in self.missing(experiments) if one.key not in self._tried]
        if not todo:
            return False
        self._planned |= {one.key: one for one in todo}
        keys = {one.key for one in todo}
        self._tried |= keys if until is None else set()
        with isolated_plugins(self._runner.checksums):
            sweep = self._sweep(list(self._planned.values()))
            shown = partial(self._watch, watch, {one.key for one in experiments})
            sweep.execute(self._executor, watch=shown, keys=keys, until=until)
        return True

    def stop(self, stopped: Mapping[str, Stopped]) -> None:
        """Keep what the search stopped, and why."""
        self.stopped |= stopped
        write_stopped(self.folder, self.stopped)

    def _watch(self, watch: Watch, keys: set[str], runs: Sequence[PlannedRun]) -> None:
        """Show the runs of this stage; those that wait at a rung or were stopped are paused."""
        shown = [run for run in runs if run.record["key"] in keys]
        for run in shown:
            if run.status == STOPPED or (run.status == "killed" and run.reason is None):
                run.status = "paused"
        watch(shown)

    def _begun(self) -> Iterator[Experiment]:
        """Yield the planned experiments of an earlier process that have a folder."""
        plan = Plan.read(self.folder) if self.folder.is_dir() else None
        for record, name in zip(plan.experiments, plan.folders, strict=True) if plan else ():
            if any(self.folder.glob(f"{name}*")):
                yield Experiment.from_record(record)

    def _sweep(self, experiments: Sequence[Experiment]) -> Sweep:
        return Sweep(experiments, self.folder, RECIPE, self._scale, self._options)

    def _executor(self) -> Executor:
        from mecheval.sweeps.local import Local

        return InProcess() if self._runner.checksums else Local(self._options.workers)
