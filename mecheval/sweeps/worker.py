"""One experiment in a process of its own: JSON in, a run folder and one line of JSON out.

python -m mecheval.sweeps.worker                  the job is a line on stdin; where stdin ends, its launcher is gone
python -m mecheval.sweeps.worker JOBS.jsonl 3     the job is line 3 of a file, counted from 0: a task of a Slurm array
"""

import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from mecheval.core.errors import Interrupted, MechevalError, StoreError
from mecheval.runs.experiment import Experiment, Settings
from mecheval.runs.files import write_json
from mecheval.runs.pending import PROGRESS, PendingRun, check_same, in_use
from mecheval.runs.provenance import made_by
from mecheval.sweeps.job import Job, Outcome
from mecheval.sweeps.stop import interruptible
from mecheval.training.config import Row

PULSE_SECONDS = 1.0


def work(job: Job) -> Outcome:
    """Carries it out. Whatever goes wrong is told."""
    clock = threading.Event()
    if job.timeout is not None:
        timer = threading.Timer(job.timeout, _stop_for, (clock,))
        timer.daemon = True
        timer.start()
    try:
        return Outcome(_carried_out(job))
    except (Interrupted, KeyboardInterrupt) as error:
        if not clock.is_set():
            return Outcome("stopped", str(error))
        return Outcome("timeout", f"not finished after {job.timeout:g} seconds")
    except StoreError as error:
        return Outcome("busy" if _busy(job.place) else "error", str(error))
    except MechevalError as error:
        return Outcome("error", str(error).removeprefix(f"{job.place.folder}: "))
    except Exception as error:
        traceback.print_exc()
        return Outcome("error", f"{type(error).__name__}: {error}")
    finally:
        if job.timeout is not None:
            timer.cancel()


def _carried_out(job: Job) -> str:
    from mecheval.plugins import checksums, load_plugin

    for path in job.plugins:
        load_plugin(path)
    settings = Settings(save_every=job.save_every, plugins=checksums())
    check_same(job.place.folder, job.made, made_by(settings.device, settings.threads, settings.plugins))
    experiment = Experiment.of(job.experiment)
    from mecheval.runs.run import run

    return run(experiment, job.out, settings, [Pulse(job.place)]).status


class Pulse:
    """Tells how far a run is, in a file beside its checkpoints that goes when it is finished."""

    def __init__(self, place: PendingRun) -> None:
        self._path, self._told = place.folder / PROGRESS, 0.0

    def start(self, experiment: Experiment, step: int) -> None:
        self._first, self._total, self._start = step, experiment.train.total, time.monotonic()
        self._tell(step)

    def log(self, step: int, loss: float, row: Row | None) -> None:
        if step == self._total or time.monotonic() - self._told > PULSE_SECONDS:
            self._tell(step)

    def finish(self, status: str) -> None:
        pass

    def _tell(self, step: int) -> None:
        self._told = time.monotonic()
        speed = (step - self._first) / max(self._told - self._start, 1e-9)
        with suppress(StoreError):  # a run does not fail for it
            write_json(self._path, {"steps": step, "total": self._total, "speed": speed})


def _busy(place: PendingRun) -> bool:
    return place.folder.is_dir() and in_use(place.folder)


def _stop_for(reason: threading.Event) -> None:
    reason.set()
    os.kill(os.getpid(), signal.SIGTERM)


def _stop_with(launcher: TextIO) -> None:
    """Whatever becomes of the launcher, nobody works on without it: it may be started again."""
    launcher.read()
    os.kill(os.getpid(), signal.SIGTERM)


def main(arguments: list[str]) -> None:
    with interruptible():
        if arguments:
            path, line = arguments
            job = Job.from_json(Path(path).read_text(encoding="utf-8").splitlines()[int(line)])
            outcome = work(job)
            job.keep(outcome)  # no launcher will
        else:
            import mecheval.runs.run  # noqa: F401, while the launcher sees what there is to do

            line = sys.stdin.readline()
            if not line:
                return  # there is nothing to do, or nobody who would want it
            job = Job.from_json(line)
            threading.Thread(target=_stop_with, args=(sys.stdin,), daemon=True).start()
            outcome = work(job)
    sys.stdout.write(outcome.to_json() + "\n")
    sys.stdout.flush()
    os._exit(0)  # a thread may be reading stdin still, which would be complained of


if __name__ == "__main__":
    main(sys.argv[1:])
