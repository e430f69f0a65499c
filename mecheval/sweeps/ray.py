"""Workers on a Ray cluster: runs are sent as JSON, the files of finished runs come back.

No shared disk is needed. Every node must have mecheval in the launcher's versions: a worker with
others refuses.
"""

import logging
import os
import re
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from mecheval.core.errors import InvalidInput, StoreError
from mecheval.results.plan import FINISHED
from mecheval.sweeps.local import Process
from mecheval.sweeps.planned import Outcome, PlannedRun

ANSWER_SECONDS = 10.0
NODE_LOSSES = 3  # that a run survives
ADDRESS = re.compile(r"(ray://)?(?P<host>[^\s:/]+):(?P<port>[0-9]{1,5})")
Files = dict[str, bytes]


def check_address(address: str) -> None:
    """Refuse what cannot be the address of a cluster."""
    if address not in ("local", "auto") and not ADDRESS.fullmatch(address):
        raise InvalidInput(f"ray={address!r} must be local, auto, HOST:PORT or ray://HOST:PORT")


class Cluster:
    """An executor with as many workers as the cluster has cores; `local` starts `workers` here."""

    def __init__(self, address: str, workers: int) -> None:
        check_address(address)
        self._ray = _import_ray()
        _connect(self._ray, address, workers)
        self._run_job = self._ray.remote(num_cpus=1, max_retries=NODE_LOSSES)(run_job)
        self._running: dict[Any, PlannedRun] = {}

    @property
    def free(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0)) - len(self._running)

    def start(self, run: PlannedRun) -> None:
        paths = [Path(path) for path in run.plugins]
        sources = [(path.name, path.read_text(encoding="utf-8")) for path in paths]
        self._running[self._run_job.remote(run.to_json(), sources)] = run

    def ended(self) -> Iterator[tuple[PlannedRun, Outcome]]:
        running = list(self._running)
        if not running:
            return
        ready, _ = self._ray.wait(running, num_returns=len(running), timeout=0)
        for reference in ready:
            run = self._running.pop(reference)
            yield run, self._outcome(run, reference)

    def stop(self) -> None:
        """Cancel all: workers elsewhere have nothing that could be saved here."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running.clear()
        self._ray.shutdown()

    def _outcome(self, run: PlannedRun, reference: Any) -> Outcome:
        try:
            text, files = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            return Outcome("error", str(error).strip().splitlines()[-1])
        except self._ray.exceptions.RayError as error:
            return Outcome("killed", str(error).strip().splitlines()[0])
        if files:
            run.place.receive(files)
        return Outcome.from_json(text)


def run_job(text: str, sources: list[tuple[str, str]]) -> tuple[str, Files]:
    """Execute a run on some node, in a process and a temporary folder; return outcome and files."""
    with tempfile.TemporaryDirectory() as room:
        paths = []
        for number, (name, source) in enumerate(sources):
            path = Path(room) / str(number) / name
            path.parent.mkdir()
            path.write_text(source, encoding="utf-8")
            paths.append(str(path))
        run = replace(PlannedRun.from_json(text), out=room, plugins=tuple(paths))
        process = Process()
        process.start(run)
        try:
            while (outcome := process.outcome()) is None:
                time.sleep(0.1)
        finally:
            process.kill()
        files = {}
        if outcome.status in FINISHED:
            files = {file.name: file.read_bytes() for file in run.place.final.iterdir()}
        return outcome.to_json(), files


def _import_ray() -> Any:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # it would report to its makers
    try:
        import ray
    except ImportError as error:
        problem = "ray is not installed; install it by pip install 'mecheval[ray]'"
        raise InvalidInput(problem) from error
    return ray


def _connect(ray: Any, address: str, workers: int) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        here = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        ray.init(num_cpus=workers, **here, **quiet)
        return
    problem = f"ray={address} does not answer; nothing is lost, rerun the same command to resume"
    failure = StoreError(problem)
    until = time.monotonic() + ANSWER_SECONDS
    if match := ADDRESS.fullmatch(address):
        try:
            place = (match["host"], int(match["port"]))
            socket.create_connection(place, timeout=ANSWER_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise failure from error
    problems: list[Exception] = []

    def connect() -> None:
        try:
            ray.init(address=address, **quiet)
        except Exception as error:
            problems.append(error)

    thread = threading.Thread(target=connect, daemon=True)  # Ray would try for minutes
    thread.start()
    thread.join(max(until - time.monotonic(), 0))
    if thread.is_alive() or problems:
        raise failure from (problems[0] if problems else None)
