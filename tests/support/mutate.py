"""Damages run folders, sweeps and kept studies, and reads them by every command that reads runs.

python tests/support/mutate.py --cases 1000 --log mutate.jsonl    resumed if it was stopped
python tests/support/mutate.py --seed 3 --only 123                one case again, with its output

No command may give a traceback, hang or end with an exit code that is not documented, and none may
leave a damaged run out without a word: it is named, and the exit code is 1 or 3. An answer without
an error is about as many runs as that about the whole folder.
"""

import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

from support import mutations
from support.bounded import End, Problem, forked, in_turn, inside
from support.draw_once import draw_once
from support.fuzz import warm_up
from support.tally import Tally, torture
from support.torture_room import build, clear, copy

KINDS = {"runs": 12, "sweep": 3, "plan": 1, "kept": 4, "kept_sweep": 2}
TABLES = {"runs": "runs", "sweep": "sweep", "plan": "sweep", "kept": "kept"}
TABLES |= {"kept_sweep": "kept_sweep"}
OUTCOMES = ("done", "diverged", "failed", "missing")
CELL = ("task", "model.architecture", "model.d_model", "model.layers", "train.lr")
Record = dict[str, Any]
Counts = dict[tuple[str, str], int | None]  # by folder and command
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

    def to_json(self) -> Record:
        return {
            "number": self.number,
            "kind": self.kind,
            "folder": str(self.folder),
            "target": str(self.target),
            "damage": asdict(self.damage),
        }

    @classmethod
    def from_json(cls, record: Record) -> "Case":
        damage = mutations.Damage(**record["damage"])
        folder, target = Path(record["folder"]), Path(record["target"])
        return cls(record["number"], record["kind"], folder, target, damage)

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


def omissions(
    case: Case, words: Sequence[str], end: End, expected: int | None = None
) -> list[Problem]:
    """Say whether a command left a run out without a word; `expected` runs are in the answer
    about the same folder when nothing is damaged."""
    command = words[0]
    if end.code in (1, 3):
        name = case.damage.file if case.kind == "plan" else case.target.name
        if any(name.encode() in text for text in (end.out, end.err)):
            return []
        return [Problem("omission", f"exit code {end.code}, but {name} is not named")]
    if end.code != 0:
        return []
    if unsaid := case.damage.certain and _unsaid(case, command, end):
        return [Problem("omission", unsaid)]
    found = counted(command, end)
    if expected is None or found == expected or case.target.name.encode() in end.err:
        return []
    # a changed table of a kept study, with its checksum, is another study
    other = case.kind in ("kept", "kept_sweep") and not case.damage.certain
    return [] if other else [Problem("omission", f"{found} runs are counted of {expected}")]


def _unsaid(case: Case, command: str, end: End) -> str | None:
    """Tell what a command that ended well should have said of certain damage."""
    gone = case.damage.what == "deleted"
    if case.kind == "plan":  # without a plan, a folder is one of single runs
        reads = command in ("figure", "claims", "sweep")
        reads |= command in ("compare", "keep", "report") and not gone
        return "the damaged plan was read as if it were whole" if reads else None
    if command == "runs":
        answer = json.loads(end.out)
        named = any(run["status"] == "damaged" for run in answer)
        return None if named else "the damaged run is not said to be"
    if command == "sweep":
        answer = json.loads(end.out)
        whole = len(answer["runs"]) == answer["counts"].get("done", 0)
        return "the damaged run counts as done" if whole else None
    if command == "intervene":  # it reads no more of a run than it needs
        return "computed from a damaged run" if case.damage.file in ALONE else None
    return "a damaged run was left out, or read as if it were whole, with exit code 0"


def counted(command: str, end: End) -> int | None:
    """Return how many runs an answer is about, where it tells."""
    answer = json.loads(end.out)
    if command in ("runs", "results"):
        return len(answer)
    if command == "keep":
        return answer["runs"]
    if command == "sweep":
        return len(answer["runs"])
    if command in ("compare", "report"):
        counts = answer["runs"] if command == "compare" else answer
        return sum(counts[name] for name in OUTCOMES)
    if command == "figure":
        cells = {tuple(cell[name] for name in CELL): cell for cell in answer}
        return sum(cell[name] for cell in cells.values() for name in OUTCOMES)
    return None


Found = tuple[tuple[str, ...], End, list[Problem]]


def carry_out(case: Case, expected: Counts, run: Callable[..., End] = forked) -> Iterator[Found]:
    """Read a damaged folder by every command; yield how each ended and what is wrong."""
    for words in case.commands():
        end = run(words, case.folder.parent)
        problems = end.problems(words)
        count = expected.get((case.folder.name, words[0]))
        yield words, end, problems or omissions(case, words, end, count)


@dataclass(frozen=True)
class Mutator:
    """Carries out cases: all commands of one in a child that has carried out others before."""

    tally: Tally
    template: Path
    scratch: Path
    expected: Counts

    def damage(self, number: int) -> Record:
        clear(self.scratch)
        self.scratch.mkdir()
        return make(self.tally.seed, number, self.template, self.scratch).to_json()

    def after_others(self, number: int) -> Record:
        """Return what a child found."""
        case = Case.from_json(self.damage(number))
        found = [*carry_out(case, self.expected, inside)]
        wrong = [problem.text for *_, problems in found for problem in problems]
        return {"case": case.to_json(), "ends": _ends(found), "wrong": wrong}

    def carry_out(self, chunk: Sequence[int]) -> None:
        """Carry out some cases; what is wrong must be so in a child of its own."""
        again = []  # when the child has ended: it works in the same folder
        for number, answer in in_turn(chunk, self.after_others, size=25):
            if isinstance(answer, End):
                again.append((number, [f"{answer.name}: {answer.err.decode()}"]))
            elif answer["wrong"]:
                again.append((number, answer["wrong"]))
            else:
                _record(self.tally, Case.from_json(answer["case"]), answer["ends"])
        for number, seen in again:
            self.alone(number, seen)

    def alone(self, number: int, seen: Sequence[str] = (), show: bool = False) -> None:
        """Carry out a case with a child for each command."""
        # damaged in a child, since DuckDB may not be used before a fork
        ((_, made),) = in_turn([number], self.damage)
        if isinstance(made, End):
            raise RuntimeError(f"case {number} cannot be made: {made.name}")
        case = Case.from_json(made)
        found = [*carry_out(case, self.expected)]
        problems = [(words, problem) for words, _, several in found for problem in several]
        _record(self.tally, case, _ends(found), problems, [] if problems else seen)
        for words, end, _ in found if show else ():
            printed = end.out.decode()[:800], end.err.decode()
            print(case, words, end.name, *printed, sep="\n", file=sys.stderr)


def mutate(tally: Tally, room: Path, show: bool = False) -> None:
    """Carry out the cases of a tally in an empty folder."""
    template, scratch = room / "template", room / "scratch"
    template.mkdir()
    build(template)
    warm_up(template)
    if not show:
        draw_once(template)
    mutator = Mutator(tally, template, scratch, count_whole(template, scratch))
    for chunk in tally.chunks():
        if show:
            mutator.alone(*chunk, show=True)
        else:
            mutator.carry_out(chunk)


def _ends(found: Sequence[Found]) -> list[list[Any]]:
    ends = []
    for words, end, _ in found:
        name = " ".join(words[: 2 if words[0] == "sweep" else 1])
        ends.append([name, end.name, round(end.cpu, 2)])
    return ends


def _record(
    tally: Tally,
    case: Case,
    ends: Sequence[Sequence[Any]],
    problems: Sequence[tuple[Sequence[str], Problem]] = (),
    seen: Sequence[str] = (),
) -> None:
    """Record a case; `seen` is what was wrong after other cases, and is not when it is alone."""
    facts = {"not alone": [text[:300] for text in seen]} if seen else {}
    tally.add(case.number, case.kind, ends, damage=str(case), **facts)
    for words, problem in problems:
        again = f"python tests/support/mutate.py --seed {tally.seed} --only {case.number}"
        command = f"mecheval {' '.join(words)}"
        told = {"damage": str(case), "command": command, "again": again}
        tally.complain(case.number, asdict(problem), **told)
    tally.keep(case.number)


def count_whole(template: Path, scratch: Path) -> Counts:
    """Count the runs in the answers about folders that are whole."""
    expected = {}
    for kind, folder in TABLES.items():
        scratch.mkdir()
        copy(template / folder, scratch / folder)
        whole = mutations.Damage("nothing", "", certain=False)
        target = min(path for path in (scratch / folder).iterdir())
        case = Case(-1, kind, scratch / folder, target, whole)
        for words in case.commands():
            end = forked(words, scratch)
            if end.code:
                raise RuntimeError(f"{' '.join(words)}: {end.err.decode(errors='replace')}")
            expected[folder, words[0]] = counted(words[0], end)
        clear(scratch)
    return expected


if __name__ == "__main__":
    sys.exit(torture(__doc__, "cases", 1000, mutate))
