"""A sweep on the command line is executed, submitted or estimated."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from mecheval.cli.app import print_json
from mecheval.cli.sweep_report import print_report, write_report
from mecheval.core.errors import Interrupted, RunFailed

if TYPE_CHECKING:
    from mecheval.results.plan import Plan
    from mecheval.sweeps.estimate import Costs
    from mecheval.sweeps.planned import PlannedRun
    from mecheval.sweeps.sweep import Executor, Sweep


@runtime_checkable
class Launch(Protocol):
    """A sweep or a queue of studies, which a command launches."""

    def execute(
        self, only: Sequence[str], ray: str | None, report: bool, as_json: bool
    ) -> None: ...

    def estimate(self, only: Sequence[str], as_json: bool) -> None: ...

    def submit(self, only: Sequence[str], workers: int | None, as_json: bool) -> None: ...


@dataclass(frozen=True)
class SweepLaunch:
    """A sweep of one recipe."""

    sweep: "Sweep"

    def execute(self, only: Sequence[str], ray: str | None, report: bool, as_json: bool) -> None:
        execute(self.sweep, only, ray, report, as_json)

    def estimate(self, only: Sequence[str], as_json: bool) -> None:
        print_sweep_estimate(self.sweep, only, as_json)

    def submit(self, only: Sequence[str], workers: int | None, as_json: bool) -> None:
        submit(self.sweep, only, workers, as_json)


def be_nice() -> None:
    """Give this process, and those that it will start, the lowest priority; Windows has no such."""
    if hasattr(os, "nice"):
        os.nice(19)


def execute(
    sweep: "Sweep",
    only: Sequence[str],
    ray: str | None,
    report: bool,
    as_json: bool,
) -> None:
    from mecheval.terminal.sweep_view import sweep_progress

    interruption: Interrupted | None = None
    with sweep_progress(sweep.options.workers) as watch, executor_of(sweep, ray) as executor:
        try:
            runs = sweep.execute(executor, only, watch)
        except Interrupted as error:
            interruption, runs = error, sweep.runs()
    rows = [run.row() for run in runs]
    written = write_report(sweep.folder) if report else None
    if as_json:
        report_path, *figures = map(str, written[1]) if written else [None]
        paths = {"report": report_path, "figures": figures}
        print_json({**sweep_summary(sweep.plan, sweep.folder, rows), **paths})
    else:
        print_rows(sweep.plan, sweep.folder, rows)
        if written:
            print_report(*written)
    if interruption:
        raise interruption
    refuse_failures(rows, f"'mecheval sweep retry {sweep.folder}' tries again")


def refuse_failures(rows: Sequence[dict[str, Any]], again: str) -> None:
    """Raise RunFailed with a line for each run that failed or was stopped, if there is any."""
    from mecheval.runs.pending import STOPPED
    from mecheval.terminal.sweep_view import failures

    if failed := failures(rows):
        stopped = any(row["status"] == STOPPED for row in rows)
        count = f"{len(failed)} of {len(rows)} runs {'are not finished' if stopped else 'failed'}"
        raise RunFailed("\n".join([*failed, f"{count}; {again}"]))


@contextmanager
def executor_of(sweep: "Sweep", ray: str | None) -> "Iterator[Callable[[], Executor]]":
    """Yield a function that returns the executor.

    Local workers start at once, to be ready in time; a cluster is contacted if there is work.
    """
    if ray is not None:
        from mecheval.sweeps.ray import Cluster

        yield lambda: Cluster(ray, sweep.options.workers)
        return
    from mecheval.sweeps.local import Local

    local = Local(sweep.options.workers)
    try:
        yield lambda: local
    finally:
        local.stop()


def sweep_summary(plan: "Plan", folder: Path, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    names = {"recipe": plan.recipe, "scale": plan.scale, "folder": str(folder)}
    return {**names, "counts": Counter(row["status"] for row in rows), "runs": rows}


def print_rows(plan: "Plan", folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    from mecheval.terminal.sweep_view import cells, summary
    from mecheval.terminal.tables import console, title

    screen = console()
    screen.print(title(plan.recipe, plan.scale, str(folder)))
    screen.print(cells(rows, len(rows)), summary(rows))


def print_sweep_estimate(sweep: "Sweep", only: Sequence[str], as_json: bool) -> None:
    from mecheval.sweeps.reuse import find_reusable

    runs, options = sweep.runs(), sweep.options
    todo = [run for run in runs if run.status in only and not find_reusable(run, options.reuse)]
    names = {"recipe": sweep.recipe, "scale": sweep.scale, "folder": str(sweep.folder)}
    print_estimate(names, len(runs), todo, options.workers, as_json)


def print_estimate(
    names: dict[str, str],
    experiments: int,
    todo: "Sequence[PlannedRun]",
    workers: int,
    as_json: bool,
    first: "Callable[[Costs], tuple[float, float] | None]" = lambda costs: None,
) -> None:
    """Measure how long some of so many experiments will take and print it below the names.

    `first` estimates a first answer.
    """
    from mecheval.sweeps.estimate import Costs, estimate
    from mecheval.terminal import tables as terminal
    from mecheval.terminal.sweep_view import estimate_table

    with terminal.working("measuring a few steps of every kind"):
        costs = Costs.measure(todo)
        taken, answer = estimate(todo, workers, costs), first(costs)
    if as_json:
        counts = {"experiments": experiments, "finished": experiments - len(todo)}
        early = {"first_answer_seconds": answer} if answer else {}
        print_json({**names, **counts, "workers": workers, **early, **vars(taken)})
        return
    rest = "" if taken.measured == taken.shapes else "; others in proportion to their size"
    total = terminal.duration(taken.fewest_seconds, taken.seconds)
    one_core = terminal.clock(taken.core_seconds)
    screen = terminal.console()
    screen.print(terminal.title(*names.values()))
    screen.print(estimate_table(taken.groups))
    screen.print(
        f"{experiments} experiments, {len(todo)} to run · {total} with {workers} workers, "
        f"at most about {one_core} of one core",
        f"{taken.measured} of {taken.shapes} kinds of run were measured now{rest}",
        sep="\n",
    )
    if answer:
        screen.print(f"a first answer is there after {terminal.duration(*answer)}")


def submit(sweep: "Sweep", only: Sequence[str], workers: int | None, as_json: bool) -> None:
    from mecheval.sweeps import slurm

    arrays, runs = slurm.submit(sweep, only, workers)
    if as_json:
        print_json({"folder": str(sweep.folder), "arrays": arrays, "runs": runs})
    elif arrays:
        hint = f"'mecheval sweep status {sweep.folder}' shows them"
        print(f"submitted {runs} runs to Slurm as array {', '.join(arrays)}; {hint}")
    else:
        print("nothing to run")
