"""Measure sweeps: models per hour with one and two workers, and how soon a long sweep resumes."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.measure import Spread, time_call
from benchmarks.ratio import Job, Line
from benchmarks.size import Size
from mecheval.core.errors import RunFailed
from mecheval.runs.experiment import Experiment
from mecheval.runs.finished import Run
from mecheval.runs.pending import PROGRESS, PendingRun
from mecheval.runs.run import run
from mecheval.sweeps.options import SweepOptions
from mecheval.sweeps.recipe import get_experiments, get_scale
from mecheval.sweeps.sweep import Sweep, sweep

CAPTION = (
    "Wall time. *1 worker*: how many times as many tiny models two workers train in an hour. "
    "*start*: the seconds from `mecheval sweep run figure3` until the only run that is not done "
    "starts to train; they contain two starts of Python and torch."
)
TINY = {
    "task": "recall:pairs=4,vocab=64",
    "model.architecture": "attention",
    "model.d_model": 16,
    "train.documents": 0,
    "eval.documents": 64,
    "eval.grid_documents": 16,
}
RECIPE = "figure3"
TIMEOUT_SECONDS = 120.0


def jobs(size: Size) -> Iterator[Job]:
    yield Job("workers", partial(worker_lines, size), weight=12 * size.models)
    yield Job("resume", partial(resume_lines, size), weight=40)


def worker_lines(size: Size) -> Iterator[Line]:
    experiments = [
        Experiment.of({**TINY, "train.steps": size.steps, "eval.every": size.steps, "seed": seed})
        for seed in range(size.models)
    ]
    one, two = [], []
    for _ in range(min(size.rounds, 2)):
        one.append(_sweep_ms(experiments, 1))
        two.append(_sweep_ms(experiments, 2))
    ratios = [a / b for a, b in zip(one, two, strict=True)]
    theirs, ours = Spread.of(one), Spread.of(two)
    ratio = theirs.median / ours.median
    hourly = [3.6e6 * size.models / spread.median for spread in (theirs, ours)]
    yield Line(
        "2 workers",
        "1 worker",
        ratio,
        least=min(ratios),
        most=max(ratios),
        ours={"wall_ms": ours},
        theirs={"wall_ms": theirs},
        note="{:.0f} models an hour with one worker, {:.0f} with two".format(*hourly),
    )


def _sweep_ms(experiments: Sequence[Experiment], workers: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        options = SweepOptions(workers=workers)
        return time_call(lambda: sweep(experiments, Path(folder) / "runs", options))[1]


def resume_lines(size: Size) -> Iterator[Line]:
    *done, last = get_experiments(RECIPE, get_scale(size.resumed))
    tiny = Experiment.of({**TINY, "train.steps": 100, "eval.every": 2})
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        runs.mkdir()
        Sweep([*done, last], runs, RECIPE, size.resumed, SweepOptions()).plan.write(runs)
        template = run(tiny, Path(folder) / "one")
        for experiment in done:
            write_finished_run(experiment, runs, template)
        seconds = seconds_to_train(runs, PendingRun(runs / last.name), size.resumed)
    note = f"{len(done)} of {len(done) + 1} runs are done"
    yield Line("resume", "start", seconds, "s", note=note)


def write_finished_run(experiment: Experiment, runs: Path, template: Run) -> None:
    """Write a finished run with the rows and the curve of the template, but without weights."""
    pending = PendingRun(runs / experiment.name)
    status = {"status": "done", "key": experiment.key, "steps": experiment.train.total}
    with pending.claim():
        pending.begin(experiment.record(), template.provenance["made_by"])
        pending.finish(
            {"status": status, "provenance": template.provenance},
            {"curve": template.curve, "rows": template.row_records},
            files={},
        )


def seconds_to_train(runs: Path, pending: PendingRun, scale: str) -> float:
    """Return the time until the run reports progress, which it does just before its first step."""
    command = [sys.executable, "-m", "mecheval", "sweep", "run", RECIPE, "--workers", "1"]
    start = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--scale", scale, "--out", str(runs)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        while not (pending.folder / PROGRESS).exists():
            if process.poll() is not None or time.perf_counter() - start > TIMEOUT_SECONDS:
                process.kill()
                stderr = process.communicate()[1].decode(errors="replace")
                raise RunFailed(f"the sweep did not resume: {stderr}")
            time.sleep(0.01)
        return time.perf_counter() - start
    finally:
        process.terminate()  # it terminates its worker, which saves
        process.communicate()
