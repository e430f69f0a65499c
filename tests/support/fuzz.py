"""Fuzzes the command line: seeded lines, made from the commands and options that the app has.

python tests/support/fuzz.py --lines 10000            most in forked children, a share by subprocess
python tests/support/fuzz.py --seed 3 --only 1234     one line again, with what it printed

Lines are valid, nearly valid or hostile. None may give a traceback, hang, end with an exit code
that is not documented, fail without a word, or write anything when it is refused (exit 2).
"""

import argparse
import gc
import io
import json
import math
import os
import random
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

from support import fuzz_values as values
from support.bounded import End, forked, fresh
from support.torture_room import build, copy, snapshot

SHARE_FRESH = 0.01  # of the lines run in a process of their own: start-up takes seconds
PATIENCE = 6.0  # seconds until a command that may train for long is asked to stop
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
        if param.opts[0] in EAGER:
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
    if param.name in wanted:
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


def carry_out(line: Line, room: Path, scratch: Path) -> tuple[End, list[str]]:
    """Run a line in a scratch folder that has copies of what it names; list what is wrong."""
    scratch.mkdir()
    for source in room.iterdir():
        if any(source.name in word for word in line.words):
            copy(source, scratch / source.name)
    before, outside = snapshot(scratch), snapshot(room)
    patience = PATIENCE if line.command.trains else None
    end = (fresh if line.fresh else forked)(line.words, scratch, patience=patience)
    problems = end.problems(line.words)
    if end.code == 2 and (written := _difference(before, snapshot(scratch))):
        problems.append(f"refused, but it wrote {written}")
    if written := _difference(outside, snapshot(room)):
        problems.append(f"it wrote outside its folder: {written}")
    for path in (scratch, scratch / "locked"):
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(scratch)
    return end, problems


def _difference(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return sorted(name for name, _ in before.items() ^ after.items())


def fuzz(
    lines: Sequence[int], seed: int, room: Path, show: bool = False, seconds: float = math.inf
) -> dict[str, Any]:
    """Carry out the lines with these numbers, as many as fit into the time; count and complain."""
    end_of_time = time.monotonic() + seconds
    known, codes = commands(), Counter()
    kinds: dict[str, Counter[str]] = {}
    problems, used, slowest = [], Counter(), (0.0, "")
    template = build(_new(room / "template"))
    warm_up(template)
    for number in lines:
        if time.monotonic() > end_of_time:
            break
        case = line(seed, number, known)
        end, wrong = carry_out(case, template, room / "scratch")
        name = str(end.code) if end.code >= 0 else "hang or signal"
        codes[name] += 1
        kinds.setdefault(case.kind, Counter())[name] += 1
        used[" ".join(case.command.words)] += end.code == 0
        slowest = max(slowest, (round(end.seconds, 1), str(case)))
        problems += [{"line": number, "command": str(case), "problem": text} for text in wrong]
        for text in wrong:
            again = f"python tests/support/fuzz.py --seed {seed} --only {number}"
            print(f"{text}\n  {case}\n  {again}", file=sys.stderr, flush=True)
        if show:
            print(
                case, end.out.decode(errors="replace"), end.err.decode(errors="replace"), sep="\n"
            )
    report = {"lines": codes.total(), "codes": codes, "kinds": kinds, "succeeded": used}
    return report | {"slowest": slowest, "problems": problems}


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


def warm_up(template: Path) -> None:
    """Import and compile what children need, by commands that read the templates.

    DuckDB is imported and not used, since its threads do not survive a fork; nothing is trained,
    since torch then refuses to train in a child.
    """
    import duckdb  # noqa: F401

    import mecheval.runs.run  # noqa: F401
    from mecheval.cli import main

    lines = ["compare runs", "sample recall:pairs=2,vocab=8", "intervene RUN --documents 4"]
    lines += ["figure 5 --runs sweep --out warm.png", "claims sweep", "sweep status sweep"]
    lines += ["report runs --out warm.html", "show task treecall:max_len=32 --train 32"]
    for text in lines:
        words = [str(template / word) if word in FOLDERS else word for word in text.split()]
        quiet = redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO())
        with tempfile.TemporaryDirectory() as place, chdir(place), quiet[0], quiet[1]:
            main(words)
    gc.collect()
    gc.freeze()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lines", type=int, default=10_000, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="number of the first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="K", help="one line, with its output")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no line after")
    asked = parser.parse_args()
    numbers = range(asked.first, asked.first + asked.lines)
    numbers = numbers if asked.only is None else [asked.only]
    memory = Path("/dev/shm")  # many small files
    start = time.monotonic()
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as room:
        report = fuzz(numbers, asked.seed, Path(room), asked.only is not None, asked.seconds)
    report["seconds"] = round(time.monotonic() - start)
    print(json.dumps(report, indent=1))
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
