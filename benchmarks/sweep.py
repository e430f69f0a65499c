"""Sweeps: models an hour with one worker and with two, and how soon a long sweep that is nearly done goes on."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.measure import Spread, timed
from benchmarks.ratio import Job, Line
from benchmarks.size import Size
from mecheval.core.errors import RunFailed
from mecheval.runs.experiment import Experiment
from mecheval.runs.finished import Run
from mecheval.runs.pending import PROGRESS, PendingRun
from mecheval.runs.run import run
from mecheval.sweeps.recipe import get_experiments, get_scale
from mecheval.sweeps.sweep import Sweep, SweepOptions, sweep

CAPTION = (
    "Wall time. *1 worker*: how many times as many tiny models two workers train in an hour. *start*: "
    "seconds from `mecheval sweep figure3` until the one run of all that is not done begins to train; Python and torch "
    "are started twice in them."
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
PATIENCE_SECONDS = 120.0


def jobs(size: Size) -> Iterator[Job]:
    yield Job("workers", partial(workers, size), weight=12 * size.models)
    yield Job("resume", partial(resume, size), weight=40)


def workers(size: Size) -> Iterator[Line]:
    experiments = [
        Experiment.of({**TINY, "train.steps": size.steps, "eval.every": size.steps, "seed": seed})
        for seed in range(size.models)
    ]
    one, two = [], []
    for _ in range(min(size.rounds, 2)):
        one.append(_milliseconds(experiments, 1))
        two.append(_milliseconds(experiments, 2))
    ratios = [a / b for a, b in zip(one, two, strict=True)]
    hourly = [3.6e6 * size.models / Spread.of(taken).median for taken in (one, two)]
    note = "{:.0f} models an hour with one worker, {:.0f} with two".format(*hourly)
    ours, theirs = ({"wall_ms": Spread.of(taken)} for taken in (two, one))
    middle = theirs["wall_ms"].median / ours["wall_ms"].median
    yield Line("2 workers", "1 worker", middle, "×", min(ratios), max(ratios), ours, theirs, note)


def _milliseconds(experiments: Sequence[Experiment], count: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return timed(
            lambda: sweep(experiments, Path(folder) / "runs", SweepOptions(workers=count))
        )[1]


def resume(size: Size) -> Iterator[Line]:
    *done, last = get_experiments(RECIPE, get_scale(size.resumed))
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        runs.mkdir()
        Sweep([*done, last], runs, RECIPE, size.resumed, SweepOptions()).plan.write(runs)
        like = run(
            Experiment.of({**TINY, "train.steps": 100, "eval.every": 2}), Path(folder) / "one"
        )
        for experiment in done:
            finish(experiment, runs, like)
        seconds = seconds_to_train(runs, PendingRun(runs / last.name), size.resumed)
    yield Line(
        "resume", "start", seconds, "s", note=f"{len(done)} of {len(done) + 1} runs are done"
    )


def finish(experiment: Experiment, runs: Path, like: Run) -> None:
    """A run of it that is as good as real: as many rows, as long a curve, but no weights."""
    place = PendingRun(runs / experiment.name)
    status = {"status": "done", "key": experiment.key, "steps": experiment.train.total}
    with place.claim():
        place.begin(experiment.record(), like.provenance["made_by"])
        place.finish(
            {"status": status, "provenance": like.provenance},
            {"curve": like.curve, "rows": like.row_records},
            files={},
        )


def seconds_to_train(runs: Path, open_run: PendingRun, scale: str) -> float:
    """From the start of the command until the run's first sign of life, which is just before its first step."""
    command = [
        sys.executable,
        "-m",
        "mecheval",
        "sweep",
        "run",
        RECIPE,
        "--scale",
        scale,
        "--out",
        str(runs),
    ]
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--workers", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        while not (open_run.folder / PROGRESS).exists():
            if process.poll() is not None or time.perf_counter() - began > PATIENCE_SECONDS:
                process.kill()
                raise RunFailed(
                    f"the sweep did not go on: {process.communicate()[1].decode(errors='replace')}"
                )
            time.sleep(0.01)
        return time.perf_counter() - began
    finally:
        process.terminate()  # it tells its worker, which saves
        process.communicate()
