"""Runs in this process, for classes that no other process can import."""

from collections.abc import Iterator

from mecheval.sweeps.planned import Outcome, PlannedRun
from mecheval.sweeps.worker import work


class InProcess:
    """Executes runs one after another in this process."""

    def __init__(self) -> None:
        self._ended: list[tuple[PlannedRun, Outcome]] = []

    @property
    def free(self) -> int:
        return 1 - len(self._ended)

    def start(self, run: PlannedRun) -> None:
        outcome = work(run)
        if outcome.status == "stopped":
            raise KeyboardInterrupt(outcome.reason)
        self._ended.append((run, outcome))

    def ended(self) -> Iterator[tuple[PlannedRun, Outcome]]:
        while self._ended:
            yield self._ended.pop()

    def stop(self) -> None:
        """Do nothing: `start` returns when its run has ended."""
