"""Execute one planned run in a process of its own: JSON in, a run folder and a line of JSON out.

python -m mecheval.sweeps.worker                the run is a line on stdin, whose end stops it
python -m mecheval.sweeps.worker RUNS.jsonl 3   the run is line 3, counted from 0: a Slurm task
"""

import math
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TextIO

from mecheval.core.errors import Interrupted, MechevalError, Paused, StoreError, describe_error
from mecheval.runs.experiment import Experiment, Settings
from mecheval.runs.files import write_json
from mecheval.runs.pending import PROGRESS, check_same
from mecheval.runs.provenance import made_by
from mecheval.runs.signals import on_stop, stop_self
from mecheval.sweeps.planned import Outcome, PlannedRun, read_progress
from mecheval.training.config import Row

PROGRESS_SECONDS = 1.0
WARM_STEPS = 5  # of a process, which compile and allocate: they say nothing about its speed


def work(planned: PlannedRun) -> Outcome:
    """Execute a planned run; every error becomes an outcome."""
    expired = threading.Event()
    if planned.timeout is not None:
        timer = threading.Timer(planned.timeout, _expire, (expired,))
        timer.daemon = True
        timer.start()
    try:
        return Outcome(_run(planned))
    except Paused:
        return Outcome("paused")
    except (Interrupted, KeyboardInterrupt) as error:
        if not expired.is_set():
            return Outcome("stopped", str(error))
        return Outcome("timeout", f"not finished after {planned.timeout:g} seconds")
    except StoreError as error:
        return Outcome("busy" if planned.busy else "error", str(error))
    except MechevalError as error:
        return Outcome("error", str(error).removeprefix(f"{planned.place.folder}: "))
    except Exception as error:
        traceback.print_exc()
        return Outcome("error", describe_error(error))
    finally:
        if planned.timeout is not None:
            timer.cancel()


def interruptible() -> AbstractContextManager[None]:
    """Let stop signals raise KeyboardInterrupt, which no `except Exception` catches."""
    return on_stop(_interrupt)


def _run(planned: PlannedRun) -> str:
    from mecheval.core.plugin_files import checksums
    from mecheval.plugins import load_plugin

    for path in planned.plugins:
        load_plugin(path)
    device = planned.made_by["device"]
    settings = Settings(device=device, save_every=planned.save_every, plugins=checksums())
    experiment = planned.experiment
    how = settings.device, settings.threads, settings.plugins
    check_same(planned.place.folder, planned.made_by, made_by(*how, experiment.model.packages))
    from mecheval.runs.run import run

    watchers = [ProgressFile(planned)]
    until = planned.until
    return run(experiment, planned.out, settings, watchers, progress=False, until=until).status


class ProgressFile:
    """Writes steps and speed into the pending run's folder; the file goes when it is finished.

    The speed is that of the steps done by this process after the first few; until it is known, the
    file keeps that of the process before.
    """

    def __init__(self, planned: PlannedRun) -> None:
        self._path, self._written = planned.place.folder / PROGRESS, 0.0
        self._speed = float(read_progress(planned.place.folder).get("speed", 0.0))

    def start(self, experiment: Experiment, step: int) -> None:
        self._warm, self._total, self._since = step + WARM_STEPS, experiment.train.total, math.inf
        self._write(step)

    def log(self, step: int, loss: float, row: Row | None) -> None:
        if step == self._warm:
            self._since = time.monotonic()
        if step == self._total or time.monotonic() - self._written > PROGRESS_SECONDS:
            self._write(step)

    def finish(self, status: str) -> None:
        pass

    def _write(self, step: int) -> None:
        self._written = time.monotonic()
        if step > self._warm and self._written - self._since > PROGRESS_SECONDS / 2:
            self._speed = (step - self._warm) / (self._written - self._since)
        numbers = {"steps": step, "total": self._total, "speed": self._speed}
        with suppress(StoreError):  # a run does not fail for it
            write_json(self._path, numbers)


class StopSignal(KeyboardInterrupt):
    """A stop signal, with its number."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


def _interrupt(number: int) -> None:
    raise StopSignal(number)


def _expire(expired: threading.Event) -> None:
    expired.set()
    stop_self()


def _stop_with(launcher: TextIO) -> None:
    """Stop when stdin ends: a launcher that is started again must find no orphan at work."""
    launcher.read()
    stop_self()


def main(arguments: list[str]) -> None:
    with interruptible():
        if arguments:
            path, line = arguments
            lines = Path(path).read_text(encoding="utf-8").splitlines()
            planned = PlannedRun.from_json(lines[int(line)])
            outcome = work(planned)
            planned.record_failure(outcome)  # no launcher will
        else:
            import mecheval.runs.run  # noqa: F401, while the launcher still reads its folder

            line = sys.stdin.readline()
            if not line:
                return  # there is nothing to do, or the launcher is gone
            planned = PlannedRun.from_json(line)
            threading.Thread(target=_stop_with, args=(sys.stdin,), daemon=True).start()
            outcome = work(planned)
    sys.stdout.write(outcome.to_json() + "\n")
    sys.stdout.flush()
    os._exit(0)  # a thread may still be reading stdin, about which Python would complain


if __name__ == "__main__":
    main(sys.argv[1:])
