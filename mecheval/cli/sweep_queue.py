"""A queue of studies on the command line: executed or estimated, with a line for each study."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mecheval.cli.app import print_json
from mecheval.cli.sweep_actions import executor_of, refuse_failures
from mecheval.core.errors import Interrupted, InvalidInput

if TYPE_CHECKING:
    from mecheval.sweeps.options import SweepOptions
    from mecheval.sweeps.planned import PlannedRun
    from mecheval.sweeps.queue import Queue
    from mecheval.sweeps.sweep import Sweep


@dataclass(frozen=True)
class QueueLaunch:
    """The runs that a queue wants and that are not kept yet, all in one folder."""

    queue: "Queue"
    folder: Path
    options: "SweepOptions"

    def execute(self, only: Sequence[str], ray: str | None, report: bool, as_json: bool) -> None:
        from mecheval.sweeps.queue_sweep import execute
        from mecheval.terminal.sweep_view import sweep_progress

        interruption: Interrupted | None = None
        runs: list[PlannedRun] = []
        if sweep := self._sweep():
            workers = self.options.workers
            with sweep_progress(workers) as watch, executor_of(sweep, ray) as executor:
                try:
                    runs = execute(self.queue, sweep, executor, only, watch)
                except Interrupted as error:
                    interruption, runs = error, sweep.runs()
        else:
            self.queue.keep({})
        rows = [run.row() for run in runs]
        self._print(self._studies(), {"runs": rows}, as_json)
        if interruption:
            raise interruption
        refuse_failures(rows, "rerun the same command to try again")

    def estimate(self, only: Sequence[str], as_json: bool) -> None:
        from mecheval.sweeps.estimate import Costs, estimate
        from mecheval.terminal import tables as terminal

        sweep = self._sweep()
        runs = [run for run in sweep.runs() if run.status in only] if sweep else []
        studies, taken = self._studies(), None
        if runs:
            with terminal.working("measuring a few steps of every kind"):
                costs = Costs.measure(runs)
            taken = estimate(runs, self.options.workers, costs)
            for study, line in zip(self.queue.studies, studies, strict=True):
                own = [run for run in runs if run.record["key"] in study.keys]
                line["seconds"] = estimate(own, self.options.workers, costs).core_seconds
        self._print(studies, {"seconds": taken.seconds if taken else 0.0}, as_json)
        if taken and not as_json:
            total = terminal.duration(taken.fewest_seconds, taken.seconds)
            terminal.console().print(f"{total} with {self.options.workers} workers")

    def submit(self, only: Sequence[str], workers: int | None, as_json: bool) -> None:
        """Refuse: a study is kept when a run has finished, and Slurm's tell nobody."""
        raise InvalidInput("--queue and --slurm cannot be used both; --ray runs it on a cluster")

    def _sweep(self) -> "Sweep | None":
        from mecheval.sweeps.queue_sweep import sweep_of

        return sweep_of(self.queue, self.folder, self.options)

    def _studies(self) -> list[dict[str, Any]]:
        lines = []
        for study in self.queue.studies:
            plan, runs = study.plan, len(study.experiments)
            names = {"name": study.name, "recipe": plan.recipe, "scale": plan.scale}
            lines.append({**names, "why": study.why, "runs": runs, "kept": self.queue.count(study)})
        return lines

    def _print(
        self, studies: Sequence[dict[str, Any]], more: dict[str, Any], as_json: bool
    ) -> None:
        from mecheval.terminal.sweep_view import queue_table
        from mecheval.terminal.tables import console, title

        names = {"queue": str(self.queue.path), "folder": str(self.folder)}
        every = len(self.queue.experiments)
        kept = every - len(self.queue.todo)
        if as_json:
            print_json({**names, "experiments": every, "kept": kept, "studies": studies, **more})
            return
        screen = console()
        screen.print(title(*names.values()), queue_table(studies), sep="\n")
        screen.print(f"{kept} of {every} runs are kept")
