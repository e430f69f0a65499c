"""A seeded part of the command-line fuzzing that `make torture` does at length."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support import fuzz
from support.bounded import HANG, End, forked

SCRIPT = Path(fuzz.__file__)


@pytest.mark.slow
def test_no_fuzzed_line_crashes_hangs_or_writes_where_it_is_refused():
    # in a process of its own: this one has trained, after which torch refuses to in a child
    command = [sys.executable, SCRIPT, "--lines", "40", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert report["problems"] == []
    assert report["codes"]["0"] >= 12


def test_every_command_of_the_app_is_fuzzed_by_valid_lines():
    from mecheval.cli import command_names

    known = fuzz.commands()
    lines = [fuzz.line(0, number, known) for number in range(3000)]
    drawn = Counter(" ".join(line.command.words) for line in lines if line.kind == "valid")
    assert {*command_names()} <= {*drawn}


def test_the_same_seed_gives_the_same_lines():
    known = fuzz.commands()
    first, again = ([fuzz.line(5, n, known) for n in range(200)] for _ in range(2))
    assert first == again
    assert first != [fuzz.line(6, n, known) for n in range(200)]


def test_the_harness_notices_every_kind_of_failure():
    crash = b"Traceback (most recent call last):\nValueError: no"
    assert End(1, b"", crash, 0.1).problems()
    assert not End(1, b"", crash, 0.1).problems(["run", "--debug"])
    assert End(9, b"", b"error: x", 0.1).problems()
    assert End(HANG, b"", b"", 60.0).problems()
    assert End(2, b"", b" \n", 0.1).problems()
    assert not End(2, b"", b"error: x", 0.1).problems()


def test_a_line_that_waits_for_ever_is_a_hang(tmp_path):
    plugin = tmp_path / "waits.py"
    plugin.write_text("import time\ntime.sleep(60)\n")
    end = forked(["list", "tasks", "--plugin", str(plugin)], tmp_path, seconds=0.5)
    assert end.code == HANG


def test_a_refused_line_that_writes_is_noticed(tmp_path):
    room = tmp_path / "room"
    room.mkdir()
    (room / "writes.py").write_text("open('new', 'w').close()\nraise ValueError\n")
    words = ("list", "tasks", "--plugin", "writes.py")
    (command,) = [command for command in fuzz.commands() if command.words == ("list",)]
    line = fuzz.Line(0, "valid", command, words, fresh=False)
    end, problems = fuzz.carry_out(line, room, tmp_path / "scratch")
    assert end.code == 2
    assert len(problems) == 1
    assert "it wrote" in problems[0]
