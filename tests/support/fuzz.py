"""Fuzzes the command line: seeded lines, made from the commands and options that the app has.

python tests/support/fuzz.py --lines 10000 --log fuzz.jsonl    resumed if it was stopped
python tests/support/fuzz.py --seed 3 --only 1234              one line again, with its output

Most run one after another in a child of a warm process, those that load plug-ins or start workers
in a child each, a share in processes of their own. What is wrong must be so in a child of its own.

Lines are valid, nearly valid or hostile. None may give a traceback, hang, end with an exit code
that is not documented, fail without a word, or write anything when it is refused (exit 2).
"""

import io
import random
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

from support import fuzz_values as values
from support.bounded import End, Problem, forked, fresh, in_turn, inside
from support.tally import Tally, torture
from support.torture_room import build, clear, copy, snapshot

SHARE_FRESH = 0.005  # of the lines run in a process of their own: start-up takes seconds
PATIENCE = 2.5  # seconds of CPU time until a command that may train for long is asked to stop
EAGER = ("--help", "--version")
FOLDERS = ("runs", "sweep", "RUN")  # templates that are read once before all lines


@dataclass(frozen=True)
class Command:
    """One command of the app: its words and its parameters."""

    words: tuple[str, ...]
    params: tuple[Any, ...]

    @property
    def trains(self) -> bool:
        """Tell whether it starts workers, whose work no option of it makes small."""
        return any(param.name == "workers" for param in self.params)


def commands() -> list[Command]:
    """Read every command from the app, hidden ones too: a new one needs no change here."""
    import typer

    from mecheval.cli import app

    return sorted(_commands(typer.main.get_group(app), ()), key=lambda command: command.words)


def _commands(group: Any, words: tuple[str, ...]) -> Iterator[Command]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*words, name))
        else:
            yield Command((*words, name), tuple(command.params))


@dataclass(frozen=True)
class Line:
    """A fuzzed command line."""

    number: int
    kind: str
    command: Command
    words: tuple[str, ...]
    fresh: bool

    @property
    def alone(self) -> bool:
        """Tell whether it would leave something behind in a process that it shares with others."""
        return self.fresh or self.command.trains or any(".py" in word for word in self.words)

    def __str__(self) -> str:
        return "mecheval " + " ".join(map(shlex.quote, self.words))


def line(seed: int, number: int, known: Sequence[Command]) -> Line:
    """Return the same line for the same seed and number."""
    rng = random.Random(f"{seed} {number}")
    weights = [values.WEIGHTS.get(" ".join(command.words), 1.0) for command in known]
    (command,) = rng.choices(known, weights)
    (kind,) = rng.choices(("valid", "near", "hostile"), (6, 3, 1))
    words = [*command.words, *_arguments(rng, command, kind)]
    if kind == "near":
        words = _spoiled(rng, words, len(command.words))
    # no argument of a process can hold NUL: such a line only reaches a function
    words = [word.replace("\0", "") or "0" for word in words] if rng.random() < 0.9 else words
    alone = rng.random() < SHARE_FRESH and not any("\0" in word for word in words)
    return Line(number, kind, command, tuple(words), alone)


def _arguments(rng: random.Random, command: Command, kind: str) -> list[str]:
    given, wanted = [], values.choose(rng, command.words)
    for param in command.params:
        if param.opts[0] in EAGER or (kind != "hostile" and wanted.get(param.name) == ()):
            continue
        optional = not param.required and param.name not in wanted
        if optional and rng.random() < (0.5 if kind == "hostile" else 0.75):
            continue
        texts = [_value(rng, param, command, wanted, kind) for _ in range(_times(rng, param, kind))]
        given.append(_placed(rng, param, texts))
    rng.shuffle(given)
    return [word for words in given for word in words]


def _times(rng: random.Random, param: Any, kind: str) -> int:
    repeated = param.nargs == -1 or getattr(param, "multiple", False)
    return rng.choice((1, 1, 2)) if repeated or kind == "hostile" else 1


def _value(
    rng: random.Random, param: Any, command: Command, wanted: dict[str, Any], kind: str
) -> str:
    if kind == "hostile" and rng.random() < 0.6:
        return rng.choice(values.HOSTILE)
    if wanted.get(param.name):
        return str(rng.choice(wanted[param.name]))
    return values.valid(rng, param, command.words)


def _placed(rng: random.Random, param: Any, texts: Sequence[str]) -> list[str]:
    if param.param_type_name == "argument":
        return [word for text in texts for word in (text.split(" ") if " " in text else [text])]
    if getattr(param, "is_flag", False):
        return [rng.choice(param.opts)]
    return [word for text in texts for word in (rng.choice(param.opts), text)]


def _spoiled(rng: random.Random, words: list[str], fixed: int) -> list[str]:
    """Spoil one word of a valid line."""
    way = rng.choice(("replace", "replace", "drop", "double", "misspell", "append", "add"))
    if way == "add" or len(words) <= fixed:
        return [*words, rng.choice(values.HOSTILE)]
    place = rng.randrange(fixed if rng.random() < 0.95 else 0, len(words))
    word = words[place]
    if way == "misspell" and word:
        letter = rng.randrange(len(word))
        new = [word[:letter] + word[letter + 1 :]]
    else:
        hostile = rng.choice(values.HOSTILE)
        new = {"drop": [], "double": [word, word], "append": [word + hostile]}.get(way, [hostile])
    return [*words[:place], *new, *words[place + 1 :]]


def carry_out(
    line: Line, room: Path, scratch: Path, run: Callable[..., End] | None = None
) -> tuple[End, list[Problem]]:
    """Run a line in a scratch folder that has copies of what it names; list what is wrong."""
    clear(scratch)
    scratch.mkdir()
    for source in room.iterdir():
        if any(source.name in word for word in line.words):
            copy(source, scratch / source.name)
    before, outside = snapshot(scratch), snapshot(room)
    if run is None:
        patience = PATIENCE if line.command.trains else None
        run = partial(fresh if line.fresh else forked, patience=patience)
    end = run(line.words, scratch)
    problems = end.problems(line.words)
    if end.code == 2 and (written := _difference(before, snapshot(scratch))):
        problems.append(Problem("written", f"it was refused, but it wrote {written}"))
    if written := _difference(outside, snapshot(room)):
        problems.append(Problem("written", f"it wrote outside its folder: {written}"))
    clear(scratch)
    return end, problems


def _difference(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return sorted(name for name, _ in before.items() ^ after.items())


@dataclass(frozen=True)
class Fuzzer:
    """Carries out lines, most in a child that has carried out others before."""

    tally: Tally
    known: Sequence[Command]
    template: Path
    scratch: Path

    def line(self, number: int) -> Line:
        return line(self.tally.seed, number, self.known)

    def after_others(self, number: int) -> tuple[int, float, list[str]]:
        """Return what a child found."""
        end, problems = carry_out(self.line(number), self.template, self.scratch, inside)
        return end.code, end.cpu, [problem.text for problem in problems]

    def carry_out(self, chunk: Sequence[int]) -> None:
        """Carry out some lines; what is wrong must be so in a child of its own."""
        shared = [number for number in chunk if not self.line(number).alone]
        again = [(number, list[str]()) for number in chunk if number not in shared]
        for number, answer in in_turn(shared, self.after_others):
            if isinstance(answer, End):
                again.append((number, [f"{answer.name}: {answer.err.decode()}"]))
            elif answer[2]:
                again.append((number, answer[2]))
            else:
                name = End(answer[0], b"", b"", 0.0).name
                _record(self.tally, self.line(number), name, answer[1])
        for number, seen in again:  # when the child has ended: it works in the same folder
            self.alone(number, seen)

    def alone(self, number: int, seen: Sequence[str] = (), show: bool = False) -> None:
        """Carry out a line in a child of its own."""
        case = self.line(number)
        end, problems = carry_out(case, self.template, self.scratch)
        _record(self.tally, case, end.name, end.cpu, problems, [] if problems else seen)
        if show:
            printed = (text.decode(errors="replace") for text in (end.out, end.err))
            print(case, *printed, sep="\n", file=sys.stderr)


def fuzz(tally: Tally, room: Path, show: bool = False) -> None:
    """Carry out the lines of a tally in an empty folder."""
    template = room / "template"
    template.mkdir()
    build(template)
    warm_up(template)
    fuzzer = Fuzzer(tally, commands(), template, room / "scratch")
    for chunk in tally.chunks():
        if show:
            fuzzer.alone(*chunk, show=True)
        else:
            fuzzer.carry_out(chunk)


def _record(
    tally: Tally,
    line: Line,
    name: str,
    cpu: float,
    problems: Sequence[Problem] = (),
    seen: Sequence[str] = (),
) -> None:
    """Record a line; `seen` is what was wrong after other lines, and is not when it is alone."""
    ends = [[" ".join(line.command.words), name, round(cpu, 2)]]
    facts = {"not alone": [text[:300] for text in seen]} if seen else {}
    tally.add(line.number, "fresh" if line.fresh else line.kind, ends, **facts)
    for problem in problems:
        again = f"python tests/support/fuzz.py --seed {tally.seed} --only {line.number}"
        tally.complain(line.number, asdict(problem), command=str(line)[:2000], again=again)
    tally.keep(line.number)


def warm_up(template: Path) -> None:
    """Import and compile what children need, by commands that read the templates.

    DuckDB is imported and not used, since its threads do not survive a fork; nothing is trained,
    since torch then refuses to train in a child. What else a child has to import its parent then
    imports too.
    """
    import duckdb  # noqa: F401

    import mecheval.runs.run  # noqa: F401
    from mecheval.cli import main

    lines = ["compare runs", "sample recall:pairs=2,vocab=8", "intervene RUN --documents 4"]
    lines += ["figure 5 --runs sweep --out warm.png", "claims sweep", "sweep status sweep"]
    lines += ["report runs --out warm.html", "show task treecall:max_len=32 --train 32"]
    lines += [f"show model {model}" for model in values.MODELS[:8]]
    for text in lines:
        words = [str(template / word) if word in FOLDERS else word for word in text.split()]
        quiet = redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO())
        with tempfile.TemporaryDirectory() as place, chdir(place), quiet[0], quiet[1]:
            main(words)


if __name__ == "__main__":
    sys.exit(torture(__doc__, "lines", 10_000, fuzz))
