"""Interleaved rounds of contestants that each have a process of their own, so that nobody has another's heap.

A heap that others have warmed keeps memory which who has large temporaries would otherwise fetch from the system in
every step: the published scan of Mamba (d = 64) takes 107,000 page faults in its own process, 77,000 in a common one.

python -m benchmarks.rounds MODULE:FUNCTION '{"argument": 1}'     makes one; measures it for every line of its input
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from benchmarks.measure import Times, timed
from benchmarks.rivals import Missing
from mecheval.core.errors import RunFailed
from mecheval.runs.experiment import Settings
from mecheval.runs.fit import prepared

ROUND_MS = 500
Run = Callable[[], object]
Make = Callable[..., Run]  # of JSON and a name


@dataclass(frozen=True)
class Contest:
    """Of those that are here the times, and what each returned of its last run before the rounds, if that is a number;
    of the others why they are not."""

    times: dict[str, Times]
    values: dict[str, float]
    absent: dict[str, str]


def contest(make: Make, names: Sequence[str], rounds: int, warm: int = 1, **given: Any) -> Contest:
    """`make(name=…, **given)` of each name, run `warm` times before the first round."""
    with contextlib.ExitStack() as stack:
        asked = {
            name: stack.enter_context(_started(make, {**given, "name": name})) for name in names
        }
        first = {name: ask(warm) for name, ask in asked.items()}
        absent = {name: found["missing"] for name, found in first.items() if "missing" in found}
        values = {name: found["value"] for name, found in first.items() if "value" in found}
        present = [name for name in names if name not in absent]
        taken = [{name: asked[name](1)["ms"] for name in present} for _ in range(rounds)]
    return Contest(
        {name: Times(*zip(*(own[name] for own in taken), strict=True)) for name in present},
        values,
        absent,
    )


@contextlib.contextmanager
def _started(make: Make, given: dict[str, Any]) -> Iterator[Callable[[int], dict[str, Any]]]:
    """How to tell a contestant to run so many times, or for a round, and hear its answer."""
    command = [
        sys.executable,
        "-m",
        __name__,
        f"{make.__module__}:{make.__qualname__}",
        json.dumps(given),
    ]
    pipe, environment = subprocess.PIPE, {**os.environ, "OMP_NUM_THREADS": "1"}
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=said, text=True, env=environment
        ) as process,
    ):
        assert process.stdin
        assert process.stdout
        requests, answered = process.stdin, process.stdout

        def ask(times: int) -> dict[str, Any]:
            with contextlib.suppress(BrokenPipeError):
                print(times, file=requests, flush=True)
            if line := answered.readline():
                found: dict[str, Any] = json.loads(line)
                return found
            said.seek(0)
            last = said.read().strip().splitlines()[-1:] or [f"exit code {process.wait()}"]
            raise RunFailed(f"{given['name']} failed in its process: {last[0]}")

        try:
            yield ask
        finally:
            process.kill()
            with contextlib.suppress(BrokenPipeError):
                requests.close()


def main(arguments: list[str]) -> None:
    """We have the process as a run has it, others as they find it."""
    place, given = arguments[0], json.loads(arguments[1])
    module, _, function = place.partition(":")
    out, process = (
        sys.stdout,
        prepared(Settings()) if given["name"] == "ours" else contextlib.nullcontext(),
    )
    with contextlib.redirect_stdout(sys.stderr), process:  # others may print
        for answer in answers(getattr(import_module(module), function), given, sys.stdin):
            print(json.dumps(answer), file=out, flush=True)


def answers(make: Make, given: dict[str, Any], asked: Iterator[str]) -> Iterator[dict[str, Any]]:
    """To the first request the value of the last run, then the milliseconds of one in a round."""
    warm = int(next(asked))
    try:
        run = make(**given)
    except Missing as error:
        yield {"missing": str(error)}
        return
    value = [run() for _ in range(warm)][-1]
    yield {"value": value} if isinstance(value, float) else {}
    for _ in asked:
        yield {"ms": one_of_many(run)}


def one_of_many(run: Run) -> list[float]:
    """The medians of CPU and of wall time over half a second, or of the second run if that is longer."""
    run()
    taken = [timed(run)]
    wall = taken[0][1]
    while wall < ROUND_MS:
        taken.append(timed(run))
        wall += taken[-1][1]
    return [statistics.median(kind) for kind in zip(*taken, strict=True)]


if __name__ == "__main__":
    main(sys.argv[1:])
