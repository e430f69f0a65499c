"""Time contestants in interleaved rounds, each in a process of its own, so that no heap is shared.

A shared heap helps contestants with large temporaries: it keeps memory that they would otherwise
request from the system in every step. The published scan of Mamba (d = 64) causes 107,000 page
faults in its own process and 77,000 in a shared one.

python -m benchmarks.rounds MODULE:FUNCTION '{"argument": 1}'     builds one; every line of its
input starts a measurement
"""

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.isolated import command, one_thread, parse_command, process_error
from benchmarks.measure import Times, time_call
from benchmarks.rivals import Missing
from mecheval.runs.experiment import Settings
from mecheval.runs.fit import prepared

ROUND_MS = 500
OURS = ("ours", "delta_net")  # contestants that are mecheval
Run = Callable[[], object]
Build = Callable[..., Run]  # its arguments are JSON, `name` among them
Reply = dict[str, Any]


@dataclass(frozen=True)
class Contest:
    """The results by contestant: `values` are the numbers that the last warm-up runs returned,
    `missing` the reasons why a contestant could not run."""

    times: dict[str, Times]
    values: dict[str, float]
    missing: dict[str, str]


def run_contest(
    build: Build, names: Sequence[str], rounds: int, warmup: int = 1, **arguments: Any
) -> Contest:
    """Time `build(name=…, **arguments)` for each name, after `warmup` runs of each."""
    with contextlib.ExitStack() as stack:
        requests = {}
        for name in names:
            process = _start(build, {**arguments, "name": name})
            requests[name] = stack.enter_context(process)
        first = {name: request(warmup) for name, request in requests.items()}
        missing = {name: reply["missing"] for name, reply in first.items() if "missing" in reply}
        values = {name: reply["value"] for name, reply in first.items() if "value" in reply}
        calls: dict[str, list[tuple[float, float]]]
        calls = {name: [] for name in names if name not in missing}
        for _ in range(rounds):
            for name in calls:
                calls[name].append(requests[name](1)["ms"])
    times = {name: Times(*zip(*rounds_ms, strict=True)) for name, rounds_ms in calls.items()}
    return Contest(times, values, missing)


@contextlib.contextmanager
def _start(build: Build, arguments: dict[str, Any]) -> Iterator[Callable[[int], Reply]]:
    """Start a contestant; yield a function that requests runs and returns the reply."""
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile("w+") as stderr,
        subprocess.Popen(
            command(__name__, build, arguments),
            stdin=pipe,
            stdout=pipe,
            stderr=stderr,
            text=True,
            env=one_thread(),
        ) as process,
    ):
        assert process.stdin
        assert process.stdout
        requests, replies = process.stdin, process.stdout

        def request(runs: int) -> Reply:
            with contextlib.suppress(BrokenPipeError):
                print(runs, file=requests, flush=True)
            if line := replies.readline():
                reply: Reply = json.loads(line)
                return reply
            stderr.seek(0)
            raise process_error(arguments["name"], stderr.read(), process.wait())

        try:
            yield request
        finally:
            process.kill()
            with contextlib.suppress(BrokenPipeError):
                requests.close()


def main(arguments: list[str]) -> None:
    """Prepare the process as for a run if the contestant is ours, and leave it alone otherwise."""
    stdout = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):  # keeps stdout free of what packages print
        build, options = parse_command(arguments)
        ours = options["name"] in OURS
        with prepared(Settings()) if ours else contextlib.nullcontext():
            for reply in replies(build, options, sys.stdin):
                print(json.dumps(reply), file=stdout, flush=True)


def replies(build: Build, arguments: dict[str, Any], requests: Iterator[str]) -> Iterator[Reply]:
    """Reply to the first request with the value of the last run, to the others with a time."""
    warmup = int(next(requests))
    try:
        run = build(**arguments)
    except Missing as error:
        yield {"missing": str(error)}
        return
    value = [run() for _ in range(warmup)][-1]
    yield {"value": value} if isinstance(value, float) else {}
    for _ in requests:
        yield {"ms": median_ms(run)}


def median_ms(run: Run) -> list[float]:
    """Return the median CPU and wall time of the runs in half a second.

    The first run is not timed, and one that takes longer is timed once.
    """
    run()
    calls = [time_call(run)]
    wall = calls[0][1]
    while wall < ROUND_MS:
        calls.append(time_call(run))
        wall += calls[-1][1]
    return [statistics.median(kind) for kind in zip(*calls, strict=True)]


if __name__ == "__main__":
    main(sys.argv[1:])
