"""A seeded part of the command-line fuzzing that `make torture` does at length."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest
from support import bounded, fuzz, watched
from support.bounded import HANG, End, forked
from support.tally import Tally

SCRIPT = Path(fuzz.__file__)
APP = import_module("mecheval.cli.app")


@pytest.mark.slow
def test_no_fuzzed_line_crashes_hangs_or_writes_where_it_is_refused():
    # in a process of its own: this one has trained, after which torch refuses to in a child
    command = [sys.executable, SCRIPT, "--lines", "40", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert (report["cases"], report["problems"]) == (40, [])
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
    assert [p.kind for p in End(1, b"", crash, 0.1).problems()] == ["traceback"]
    assert not End(1, b"", crash, 0.1).problems(["run", "--debug"])
    assert [p.kind for p in End(9, b"", b"error: x", 0.1).problems()] == ["exit code"]
    assert [p.kind for p in End(HANG, b"", b"", 60.0).problems()] == ["hang"]
    assert [p.kind for p in End(2, b"", b" \n", 0.1).problems()] == ["no word"]
    assert not End(2, b"", b"error: x", 0.1).problems()


def raises(*words, **options):
    raise RuntimeError("planted")


def exits_with_7(*words, **options):
    return 7


def sleeps(*words, **options):
    time.sleep(600)


def computes_for_ever(*words, **options):
    while True:
        pass


def dies(*words, **options):
    os._exit(0)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (raises, "traceback"),
        (exits_with_7, "exit code"),
        (sleeps, "hang"),
        (computes_for_ever, "hang"),
        (dies, None),
    ],
)
def test_a_planted_fault_is_found_alone_and_after_other_lines(fault, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(watched, "SECONDS", 0.5)  # of CPU time

    def do(planted):
        with monkeypatch.context() as patch:
            if planted:
                patch.setattr(APP, "app", fault)
            end = bounded.inside(["list", "--help"], tmp_path)
        return [problem.kind for problem in end.problems()]

    first, (_, found), last = bounded.in_turn([0, 1, 0], do, idle=0.5)
    assert (first, last) == ((0, []), (0, []))
    if isinstance(found, End):
        assert found.problems()
    else:
        assert kind in found
    monkeypatch.setattr(APP, "app", fault)
    alone = forked(["list"], tmp_path, idle=0.5).problems()
    assert kind is None or kind in [problem.kind for problem in alone]


def test_a_stopped_torture_is_resumed_and_can_repeat_what_was_wrong(tmp_path):
    log, first = tmp_path / "log.jsonl", Tally(3, range(4), tmp_path / "log.jsonl")
    for number in (0, 2):
        first.add(number, "valid", [["list", "0", 0.1]])
        if number:
            first.complain(number, {"kind": "hang", "text": "it did not end"})
        first.keep(number)
    again = Tally(3, range(4), log)
    assert [*again.chunks()] == [[1, 3]]
    assert again.report()["problems by kind"]["hang"] == 1
    assert [*Tally(3, range(4), log, again=True).chunks()] == [[1, 2, 3]]
    assert [*Tally(4, range(4), log).chunks()] == [[0, 1, 2, 3]]


def test_a_line_that_waits_for_ever_is_a_hang(tmp_path):
    plugin = tmp_path / "waits.py"
    plugin.write_text("import time\ntime.sleep(60)\n")
    end = forked(["list", "tasks", "--plugin", str(plugin)], tmp_path, idle=0.5)
    assert [problem.kind for problem in end.problems()] == ["hang"]


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
    assert "it wrote" in problems[0].text
