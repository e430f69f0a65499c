"""Damages run folders, sweeps and kept studies, and reads them by every command that reads runs.

python tests/support/mutate.py --cases 1000
python tests/support/mutate.py --seed 3 --only 123    one case again, with what was printed

No command may give a traceback, hang or end with an exit code that is not documented, and none may
leave a damaged run out without a word: it is named, and the exit code is 1 or 3.
"""

import argparse
import json
import math
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

from support import mutations
from support.bounded import End, forked
from support.fuzz import warm_up
from support.torture_room import build, copy

KINDS = {"runs": 12, "sweep": 3, "plan": 1, "kept": 4, "kept_sweep": 2}
TABLES = {"runs": "runs", "sweep": "sweep", "plan": "sweep", "kept": "kept"}
TABLES |= {"kept_sweep": "kept_sweep"}
RUNS = 4  # in each of the templates
ALONE = ("weights.safetensors", "experiment.json", "status.json", "checksums.json")


@dataclass(frozen=True)
class Case:
    """One damaged folder: its kind, what was damaged in it, and how."""

    number: int
    kind: str
    folder: Path
    target: Path
    damage: mutations.Damage

    def __str__(self) -> str:
        where = self.target.relative_to(self.folder.parent)
        return f"{where}/{self.damage.file}: {self.damage.what}"

    def commands(self) -> Iterator[tuple[str, ...]]:
        """Yield every command that reads such a folder."""
        folder = self.folder.name
        yield "runs", folder, "--json"
        yield "results", folder, "--json", "--sql", "select distinct key from rows"
        yield "compare", folder, "--by", "architecture", "--json"
        yield "keep", folder, "--out", "new", "--json"
        yield "report", folder, "--out", "page.html", "--json"
        if self.kind == "runs":
            name = str(self.target.relative_to(self.folder.parent))
            yield "intervene", name, "--documents", "4", "--json"
        if "runs" != self.kind != "kept":
            yield "figure", "figure5", "--runs", folder, "--json"
            yield "claims", folder, "--json"
            yield "sweep", "status", folder, "--json"


def make(seed: int, number: int, room: Path, scratch: Path) -> Case:
    """Damage a copy of a template; the same for the same seed and number."""
    rng = random.Random(f"{seed} {number}")
    (kind,) = rng.choices([*KINDS], [*KINDS.values()])
    folder = scratch / TABLES[kind]
    copy(room / folder.name, folder)
    target = folder
    if kind in ("runs", "sweep"):
        target = rng.choice(sorted(path for path in folder.iterdir() if path.is_dir()))
        damage = mutations.damage_run(rng, target)
    elif kind == "plan":
        damage = mutations.damage_plan(rng, folder)
    else:
        damage = mutations.damage_archive(rng, folder)
    return Case(number, kind, folder, target, damage)


def omissions(case: Case, words: Sequence[str], end: End) -> list[str]:
    """Say whether a command left a damaged run out without a word."""
    named = any(case.target.name.encode() in text for text in (end.out, end.err))
    if end.code == 0:
        return _uncounted(case, words, end)
    if end.code in (1, 3) and not named:
        return [f"exit code {end.code}, but {case.target.name} is not named"]
    return []


def _uncounted(case: Case, words: Sequence[str], end: End) -> list[str]:
    """Look for a run that is missing in the output of a command that ended well."""
    command, answer = words[0], json.loads(end.out)
    if command == "runs":
        damaged = [run for run in answer if run["status"] == "damaged"]
        if len(answer) != RUNS and case.kind in ("runs", "sweep"):
            return [f"{len(answer)} of {RUNS} runs are listed"]
        return [] if damaged or not case.damage.certain else ["the damaged run is not said to be"]
    if command == "intervene":
        read = case.damage.certain and case.damage.file in ALONE
        return ["computed from a damaged run"] if read else []
    if command == "sweep":
        failed = len(answer["runs"]) - answer["counts"].get("done", 0)
        return ["the damaged run counts as done"] if case.damage.certain and not failed else []
    if case.damage.certain:
        return ["a damaged run was left out, or read as if it were whole, with exit code 0"]
    if command == "report" and sum(answer[name] for name in COUNTS) != RUNS:
        counted = case.kind in ("runs", "sweep")
        return [f"the report counts {answer}"] if counted else []
    return []


COUNTS = ("done", "diverged", "failed", "missing")


def carry_out(case: Case, scratch: Path) -> Iterator[tuple[tuple[str, ...], End, list[str]]]:
    """Read a damaged folder by every command; yield how each ended and what is wrong."""
    for words in case.commands():
        end = forked(words, scratch)
        problems = end.problems(words)
        yield words, end, problems or omissions(case, words, end)


def mutate(
    cases: Sequence[int], seed: int, room: Path, show: bool = False, seconds: float = math.inf
) -> dict[str, Any]:
    """Carry out the cases with these numbers, as many as fit into the time; count and complain."""
    end_of_time = time.monotonic() + seconds
    template, scratch = room / "template", room / "scratch"
    template.mkdir()
    build(template)
    warm_up(template)
    codes: dict[str, Counter[str]] = {}
    kinds, certain, problems = Counter(), 0, []
    for number in cases:
        if time.monotonic() > end_of_time:
            break
        scratch.mkdir()
        case = _in_child(seed, number, template, scratch)
        kinds[case.kind] += 1
        certain += case.damage.certain
        for words, end, wrong in carry_out(case, scratch):
            code = str(end.code) if end.code >= 0 else "hang or signal"
            codes.setdefault(" ".join(words[: 2 if words[0] == "sweep" else 1]), Counter())[
                code
            ] += 1
            problems += [_problem(case, words, text, seed) for text in wrong]
            if show:
                print(case, words, end.code, end.out.decode()[:800], end.err.decode(), sep="\n")
        shutil.rmtree(scratch)
    report = {"cases": kinds.total(), "kinds": kinds, "certainly damaged": certain, "codes": codes}
    return report | {"problems": problems}


def _in_child(seed: int, number: int, template: Path, scratch: Path) -> Case:
    """Damage in a child, since DuckDB may not be used before a fork, and return the case."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        case = make(seed, number, template, scratch)
        facts = [case.kind, str(case.folder), str(case.target), *vars(case.damage).values()]
        os.write(writing, json.dumps(facts).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        kind, folder, target, *damage = json.loads(told.read())
    os.waitpid(child, 0)
    return Case(number, kind, Path(folder), Path(target), mutations.Damage(*damage))


def _problem(case: Case, words: Sequence[str], text: str, seed: int) -> dict[str, Any]:
    again = f"python tests/support/mutate.py --seed {seed} --only {case.number}"
    print(f"{text}\n  {case}\n  mecheval {' '.join(words)}\n  {again}", file=sys.stderr, flush=True)
    return {"case": case.number, "damage": str(case), "command": " ".join(words), "problem": text}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=1000, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="number of the first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="K", help="one case, with its output")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no case after")
    asked = parser.parse_args()
    numbers = range(asked.first, asked.first + asked.cases)
    numbers = numbers if asked.only is None else [asked.only]
    memory = Path("/dev/shm")
    start = time.monotonic()
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as room:
        report = mutate(numbers, asked.seed, Path(room), asked.only is not None, asked.seconds)
    report["seconds"] = round(time.monotonic() - start)
    print(json.dumps(report, indent=1))
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
