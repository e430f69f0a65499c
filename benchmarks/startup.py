"""Measure how soon the command line answers, against importing torch, which it must not do."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from benchmarks.isolated import one_thread
from benchmarks.measure import time_rounds
from benchmarks.ratio import Job, Line, cpu_share
from benchmarks.size import Size

CAPTION = "CPU time of a command that computes nothing, as a part of the time to import torch."
COMMANDS = ("--help", "list tasks")


def jobs(size: Size) -> Iterator[Job]:
    yield Job("commands", partial(lines, size), weight=20 * size.rounds)


def lines(size: Size) -> Iterator[Line]:
    ours = {command: partial(_run, "-m", "mecheval", *command.split()) for command in COMMANDS}
    times = time_rounds({**ours, "torch": partial(_run, "-c", "import torch")}, size.rounds)
    for command in COMMANDS:
        yield cpu_share(f"mecheval {command}", "import torch", times[command], times["torch"])


def _run(*arguments: str) -> None:
    command = [sys.executable, *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=one_thread())
