"""How soon the command line answers, against what it must not import."""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from benchmarks.measure import Times, interleaved
from benchmarks.ratio import Job, Line, share_of
from benchmarks.size import Size

CAPTION = "CPU time of a command that computes nothing, as a part of what importing torch takes."
COMMANDS = ("--help", "list tasks")


def jobs(size: Size) -> Iterator[Job]:
    yield Job("commands", partial(lines, size), weight=20 * size.rounds)


def lines(size: Size) -> Iterator[Line]:
    times = contest(COMMANDS, size.rounds)
    for command in COMMANDS:
        yield share_of(f"mecheval {command}", "import torch", times[command], times["torch"])


def contest(commands: tuple[str, ...], rounds: int) -> dict[str, Times]:
    ours = {command: partial(_run, "-m", "mecheval", *command.split()) for command in commands}
    return interleaved({**ours, "torch": partial(_run, "-c", "import torch")}, rounds)


def _run(*arguments: str) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment
    )
