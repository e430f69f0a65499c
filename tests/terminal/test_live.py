"""The progress of a run on a terminal and in a file."""

import re
import time
from io import StringIO

import pytest
from rich.console import Console

from mecheval.runs.experiment import Experiment
from mecheval.terminal import live as module
from mecheval.terminal.live import Bar, Lines, Pace, progress

ROW = {"step": 50, "loss": 1.25, "accuracy": 0.5, "likelihood": 0.3, "train_loss": 1.5}
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\x1b]")


@pytest.fixture
def experiment():
    return Experiment.of(
        {"task": "recall:pairs=2,vocab=8", "model.architecture": "attention", "train.steps": 200}
    )


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that the test moves."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def text_of(out):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())


def test_a_bar_shows_loss_accuracy_speed_and_time_left(experiment, clock):
    out = StringIO()
    bar = Bar(
        Console(force_terminal=True, file=out, width=160, legacy_windows=False, color_system=None)
    )
    bar.start(experiment, 0)
    clock[0] += 5
    bar.log(50, 1.875, ROW)
    shown = text_of(out).splitlines()[-1]
    for part in (
        "recall:pairs=2,vocab=8 · attention",
        "50/200",
        "loss 1.875",
        "accuracy 50.0%",
        "10 steps/s",
    ):
        assert part in shown
    assert "0:00:15 left" in shown, "150 steps at 10 a second"
    clock[0] += 5
    bar.log(60, 1.5, None)
    shown = text_of(out).splitlines()[-1]
    assert "loss 1.500 · accuracy 50.0%" in shown, "the last accuracy that is known"
    assert "6 steps/s" in shown
    bar.finish("done")
    assert "done" in text_of(out).splitlines()[-1]
    assert "\x1b[?25h" in out.getvalue(), "the cursor is back"


def test_a_bar_does_not_draw_every_step(experiment, clock):
    out = StringIO()
    bar = Bar(Console(force_terminal=True, file=out, width=160))
    bar.start(experiment, 0)
    bar.log(1, 2.0, None)
    drawn = len(out.getvalue())
    for step in range(2, 50):
        clock[0] += 0.001
        bar.log(step, 2.0, None)
    assert len(out.getvalue()) == drawn
    clock[0] += 1
    bar.log(50, 2.0, None)
    assert len(out.getvalue()) > drawn
    bar.finish("done")


def test_the_pace_is_of_this_session(clock):
    pace = Pace(1000, 10_000)
    clock[0] += 10
    assert pace.at(1100) == "10 steps/s · 0:14:50 left"
    clock[0] += 0.1
    assert pace.at(1000).startswith("0 steps/s"), "no step is no division by zero"


def test_a_long_time_left_is_in_hours(clock):
    pace = Pace(0, 50_016)
    clock[0] += 100
    assert pace.at(100) == "1 steps/s · 13:51:56 left"


def test_lines_have_no_control_characters(experiment, clock):
    out = StringIO()
    lines = Lines(Console(file=out, width=40))
    lines.start(experiment, 0)
    clock[0] += 10
    lines.log(49, 2.0, None)
    lines.log(50, 2.0, ROW)
    clock[0] += 1
    lines.log(100, 2.0, ROW)
    lines.log(200, 2.0, ROW)
    lines.finish("done")
    assert not CONTROL.search(out.getvalue())
    assert out.getvalue().splitlines() == [
        "recall:pairs=2,vocab=8 · attention: step 0 of 200",
        "step 50 of 200 · loss 1.250 · accuracy 50.0% · 5 steps/s · 0:00:30 left",
        "step 200 of 200 · loss 1.250 · accuracy 50.0% · 18 steps/s · 0:00:00 left",
        "done",
    ], "a line now and then, whole whatever the width, and always the last"


@pytest.mark.parametrize(("terminal", "expected"), [(True, Bar), (False, Lines)])
def test_a_terminal_has_a_bar_and_a_file_has_lines_both_on_stderr(
    terminal, expected, monkeypatch, capsys, experiment
):
    def console(stderr, emoji):
        return Console(force_terminal=terminal, stderr=stderr, emoji=emoji, width=120)

    monkeypatch.setattr(module, "Console", console)
    found = progress()
    assert type(found) is expected
    found.start(experiment, 0)
    found.finish("done")
    assert "done" in capsys.readouterr().err
