"""Options of a sweep: where and how long runs may run, what they start from."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from mecheval.core.errors import InvalidInput
from mecheval.core.options import Field, validate

WORKERS = Field(ge=1, le=4096, description="runs at once")


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Options of a sweep that change no row.

    Parameters
    ----------
    workers
        Runs at once.
    timeout
        Seconds that a run may take.
    save_every
        Seconds between checkpoints.
    shuffle
        Seed of the order of runs.
    plugins
        Files that every worker imports first.
    reuse
        Folders from which finished runs are copied.
    device
        `cpu`, `cuda` or `mps`; all workers share it.

    Examples
    --------
    >>> from mecheval import SweepOptions
    >>> SweepOptions(workers=2).save_every
    30.0
    """

    workers: Annotated[int, WORKERS] = field(default_factory=cores)
    timeout: Annotated[float | None, Field(gt=0, description="seconds a run may take")] = None
    save_every: Annotated[float, Field(ge=0, description="seconds between checkpoints")] = 30.0
    shuffle: Annotated[int | None, Field(ge=0, description="seed of the order of runs")] = None
    plugins: tuple[str, ...] = ()  # paths of files that every worker imports first
    reuse: tuple[Path, ...] = ()  # folders from which finished runs are copied
    device: Annotated[Literal["cpu", "cuda", "mps"], Field(description="torch device")] = "cpu"

    def __post_init__(self) -> None:
        paths = ("plugins", "reuse")
        validate(type(self), {n: v for n, v in vars(self).items() if n not in paths}, given=paths)
        for folder in self.reuse:
            if not folder.is_dir():
                raise InvalidInput(f"reuse={str(folder)!r} must be a folder with runs")

    def check_device(self) -> None:
        """Refuse a device that this machine has not; a cluster's nodes check their own."""
        if self.device != "cpu":  # torch takes seconds to import
            from mecheval.runs.fit import check_device

            check_device(self.device)
