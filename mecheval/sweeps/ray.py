"""Workers on a Ray cluster: plain JSON goes there, the files of finished runs come back. No shared disk is needed.

Every node must have mecheval installed, in the versions of the launcher: a worker with others refuses.
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
from mecheval.sweeps.job import Job, Outcome
from mecheval.sweeps.local import Process

ANSWER_SECONDS = 10.0
NODE_LOSSES = 3  # that a run survives
ADDRESS = re.compile(r"(ray://)?(?P<host>[^\s:/]+):(?P<port>[0-9]{1,5})")
Files = dict[str, bytes]


def check_address(address: str) -> None:
    if address not in ("local", "auto") and not ADDRESS.fullmatch(address):
        raise InvalidInput(f"ray={address!r} must be local, auto, HOST:PORT or ray://HOST:PORT")


class Cluster:
    """As many workers as the cluster has cores, or so many on this machine if it is "local"."""

    def __init__(self, address: str, workers: int) -> None:
        check_address(address)
        self._ray = _imported()
        _connect(self._ray, address, workers)
        self._work = self._ray.remote(num_cpus=1, max_retries=NODE_LOSSES)(carried_out)
        self._at_work: dict[Any, Job] = {}

    @property
    def free(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0)) - len(self._at_work)

    def start(self, job: Job) -> None:
        sources = [(Path(path).name, Path(path).read_text(encoding="utf-8")) for path in job.plugins]
        self._at_work[self._work.remote(job.to_json(), sources)] = job

    def ended(self) -> Iterator[tuple[Job, Outcome]]:
        waiting = list(self._at_work)
        ready, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0) if waiting else ([], [])
        for reference in ready:
            job = self._at_work.pop(reference)
            yield job, self._outcome(job, reference)

    def stop(self) -> None:
        """Workers elsewhere have nothing that could be saved here."""
        for reference in self._at_work:
            self._ray.cancel(reference, force=True)
        self._at_work.clear()
        self._ray.shutdown()

    def _outcome(self, job: Job, reference: Any) -> Outcome:
        try:
            text, files = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            return Outcome("error", str(error).strip().splitlines()[-1])
        except self._ray.exceptions.RayError as error:
            return Outcome("killed", str(error).strip().splitlines()[0])
        if files:
            job.place.receive(files)
        return Outcome.from_json(text)


def carried_out(text: str, sources: list[tuple[str, str]]) -> tuple[str, Files]:
    """On some node: a job in a folder of its own that is gone afterwards, by a process as on any machine."""
    with tempfile.TemporaryDirectory() as room:
        paths = [_written(Path(room) / str(number) / name, source) for number, (name, source) in enumerate(sources)]
        job = replace(Job.from_json(text), out=room, plugins=tuple(paths))
        process = Process(job)
        try:
            while (outcome := process.outcome()) is None:
                time.sleep(0.1)
        finally:
            process.kill()
        finished = outcome.status in FINISHED
        return outcome.to_json(), {
            file.name: file.read_bytes() for file in job.place.final.iterdir()
        } if finished else {}


def _written(path: Path, source: str) -> str:
    path.parent.mkdir()
    path.write_text(source, encoding="utf-8")
    return str(path)


def _imported() -> Any:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # it would tell its makers
    try:
        import ray
    except ImportError as error:
        raise InvalidInput("ray is not installed; --ray needs it: pip install 'mecheval[ray]'") from error
    return ray


def _connect(ray: Any, address: str, workers: int) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        ray.init(num_cpus=workers, include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
        return
    failure = StoreError(f"ray={address} does not answer; nothing is lost, the same command goes on when it does")
    until = time.monotonic() + ANSWER_SECONDS
    if found := ADDRESS.fullmatch(address):
        try:
            socket.create_connection((found["host"], int(found["port"])), timeout=ANSWER_SECONDS).close()
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
