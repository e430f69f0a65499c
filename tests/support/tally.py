"""Counts how cases of torture ended, keeps each in a file, and says how long the rest will take.

With `--log FILE` a run that was stopped is resumed: a case that is in the file is not repeated,
unless `--again` asks for those with problems. Cases of other commits count with `--any-commit`.
"""

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.bounded import KINDS

ROOT = Path(__file__).parents[2]
EVERY = 30.0  # seconds between two lines of progress
Record = dict[str, Any]


@dataclass
class Tally:
    """What was seen of the cases with these numbers, in this and earlier processes."""

    seed: int
    numbers: Sequence[int]
    log: Path | None = None
    again: bool = False
    any_commit: bool = False
    seconds: float = math.inf
    cases: dict[int, Record] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._commit, self._start, self._said = commit(), time.monotonic(), time.monotonic()
        self._new, self._open = 0, list(self.numbers)
        for line in self.log.read_text().splitlines() if self.log and self.log.exists() else ():
            case = json.loads(line)  # a later line of the same number replaces an earlier one
            same = self.any_commit or case["commit"] == self._commit
            if same and case["seed"] == self.seed and case["number"] in self.numbers:
                self.cases[case["number"]] = case
        known = self.cases.values()
        self._done = {c["number"] for c in known if not (self.again and c["problems"])}

    def chunks(self, size: int = 200) -> Iterator[list[int]]:
        """Yield the numbers of the cases that are still to be carried out, while there is time."""
        self._open = [number for number in self.numbers if number not in self._done]
        for start in range(0, len(self._open), size):
            if self.late:
                return
            yield self._open[start : start + size]

    @property
    def late(self) -> bool:
        return time.monotonic() - self._start > self.seconds

    def add(self, number: int, kind: str, ends: Sequence[Sequence[Any]], **facts: Any) -> None:
        """Begin a case's record with name, exit code and CPU time of its commands."""
        case = {"number": number, "seed": self.seed, "commit": self._commit, "kind": kind}
        self.cases[number] = {**case, "ends": ends, "problems": [], **facts}

    def complain(self, number: int, problem: Record, **facts: str) -> None:
        """Add a problem to a case's record, and print it."""
        self.cases[number]["problems"].append({**problem, **facts})
        print("{kind}: {text}".format(**problem), *facts.values(), sep="\n  ", file=sys.stderr)

    def keep(self, number: int) -> None:
        """Write a case's record to the log; print now and then how far this is."""
        if self.log:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("a") as file:
                file.write(json.dumps(self.cases[number]) + "\n")
        self._new += 1
        if time.monotonic() - self._said > EVERY:
            self._said = time.monotonic()
            self._say((self._said - self._start) * (len(self._open) / self._new - 1))

    @property
    def problems(self) -> list[Record]:
        cases = sorted(self.cases.values(), key=lambda case: case["number"])
        return [{"case": c["number"], **problem} for c in cases for problem in c["problems"]]

    def report(self) -> Record:
        """Return the counts of all cases, and every problem."""
        cases, counts = self.cases.values(), Counter(p["kind"] for p in self.problems)
        by_command: dict[str, Counter[str]] = {}
        for case in cases:
            for name, code, _ in case["ends"]:
                by_command.setdefault(name, Counter())[code] += 1
        report = {"cases": len(cases), "of": len(self.numbers), "seed": self.seed}
        report |= {"commits": Counter(case["commit"] for case in cases)}
        report |= {"kinds": Counter(case["kind"] for case in cases), "codes": self._codes()}
        report |= {"by command": dict(sorted(by_command.items()))}
        report |= {"not seen alone": sum(bool(case.get("not alone")) for case in cases)}
        report |= {"CPU seconds": round(sum(cpu for case in cases for *_, cpu in case["ends"]))}
        report |= {"problems by kind": {kind: counts[kind] for kind in KINDS}}
        return report | {"problems": self.problems}

    def _codes(self) -> Counter[str]:
        return Counter(code for case in self.cases.values() for _, code, _ in case["ends"])

    def _say(self, left: float) -> None:
        codes = ", ".join(f"{code}: {count}" for code, count in sorted(self._codes().items()))
        done = f"{len(self.cases):,} of {len(self.numbers):,} cases"
        wrong = f"{len(self.problems)} problems"
        print(f"{done} · exit {codes} · {wrong} · {left / 60:.0f} min left", file=sys.stderr)


def commit() -> str:
    """Return the commit of the package that is tried, marked if files differ from it."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10"]
    described = subprocess.run([*command, "--exclude", "*"], capture_output=True, text=True)
    return described.stdout.strip() or os.environ.get("MECHEVAL_COMMIT", "unknown")


def torture(
    about: str | None, cases: str, count: int, carry_out: Callable[[Tally, Path, bool], object]
) -> int:
    """Read the options, carry out the cases in a room, print the report; 1 if one has a problem."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, formatter_class=form)
    parser.add_argument(f"--{cases}", dest="count", type=int, default=count, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="number of the first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="K", help="one case, with its output")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no case after")
    parser.add_argument("--log", type=Path, help="keep every case here, and resume from it")
    parser.add_argument("--again", action="store_true", help="repeat the log's cases with problems")
    parser.add_argument("--any-commit", action="store_true", help="count cases of other commits")
    asked = parser.parse_args()
    numbers: Sequence[int] = range(asked.first, asked.first + asked.count)
    numbers = numbers if asked.only is None else [asked.only]
    tally = Tally(asked.seed, numbers, asked.log, asked.again, asked.any_commit, asked.seconds)
    with room() as place:
        carry_out(tally, place, asked.only is not None)
    print(json.dumps(tally.report(), indent=1))
    return 1 if tally.problems or not tally.cases else 0


@contextlib.contextmanager
def room() -> Iterator[Path]:
    """Yield an empty folder, in memory where that is possible: there will be many small files."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as place:
        yield Path(place)
