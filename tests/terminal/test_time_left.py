"""The time left is a range, and after a resume it is right from the first line."""

import pytest
from support.fault_injection import small
from support.made_runs import finished

from mecheval.runs.pending import PROGRESS
from mecheval.sweeps.options import SweepOptions
from mecheval.sweeps.planned import PlannedRun
from mecheval.sweeps.sweep import Sweep
from mecheval.sweeps.worker import WARM_STEPS, ProgressFile
from mecheval.terminal.sweep_view import seconds_left, summary
from mecheval.terminal.tables import duration


def row(status="waiting", steps=0, speed=None, **other):
    fields = {"task": "recall", "model.architecture": "mamba", "total": 1000, "until": None}
    return {**fields, "status": status, "steps": steps, "speed": speed, **other}


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (40, 80, "40–80 seconds"),
        (20, 120, "up to 2 minutes"),
        (480, 720, "8–12 minutes"),
        (600, 610, "about 10 minutes"),
        (5400, 9000, "1.5–2.5 hours"),
        (36_000, 72_000, "10–20 hours"),
    ],
)
def test_a_range_is_said_in_one_unit(low, high, text):
    assert duration(low, high) == text


def test_nothing_is_said_before_a_pace_is_known():
    assert seconds_left([row(), row("running", speed=0.0)], workers=2) is None
    assert summary([row()], workers=2).plain == "1 waiting"


def test_the_range_is_from_the_fastest_to_the_slowest_pace():
    rows = [row("running", 500, 10.0), row("running", 500, 5.0), row()]
    fewest, most = seconds_left(rows, workers=2)
    assert fewest == pytest.approx((50 + 50 + 100) / 2)
    assert most == pytest.approx((100 + 100 + 200) / 2)


def test_a_run_that_may_stop_early_makes_the_range_wide():
    stop = {"train.stop": 0.99}
    rows = [row("done", 250, 10.0, **stop), row(**stop)]
    assert seconds_left(rows, workers=1) == pytest.approx((25, 100))
    assert seconds_left([row("done", 1000, 10.0, **stop), row(**stop)], 1) == (100, 100)


def test_after_a_pause_one_run_continues_to_its_end():
    pausing = [row("running", 100, 10.0, until=200), row(until=200)]
    assert seconds_left(pausing, 1) == pytest.approx((30 + 80, 30 + 80))
    assert seconds_left(pausing, 2) == pytest.approx((20 + 80, 20 + 80))
    may_stop = [row("running", 100, 10.0, until=200, **{"train.stop": 0.99})]
    fewest, most = seconds_left(may_stop, 1)
    assert fewest < most == pytest.approx(90)
    assert seconds_left([row("running", 100, 10.0, until=1000)], 1) == pytest.approx((90, 90))


def test_runs_at_work_now_count_more_than_those_before():
    rows = [row("done", 1000, 100.0), row("running", 0, 10.0)]
    assert seconds_left(rows, workers=1) == pytest.approx((100, 100))


def test_a_resumed_sweep_knows_the_pace_of_its_finished_runs(tmp_path):
    done, open_run = small(seed=0), small(seed=1)
    sweep = Sweep([done, open_run], tmp_path, "mine", "own", SweepOptions(workers=1))
    sweep.plan.write(tmp_path)
    made = sweep.runs()[0].made_by
    wall = {"made_by": made, "wall_seconds": 50.0}
    finished(tmp_path, done, provenance=wall)
    rows = [run.row() for run in sweep.runs()]
    assert rows[0]["speed"] == 2.0, "100 steps in 50 seconds"
    left = open_run.train.total / 2
    assert seconds_left(rows, workers=1) == (left, left)


def test_the_speed_is_that_of_this_process_alone(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("mecheval.sweeps.worker.time.monotonic", lambda: now[0])
    experiment = small(train_steps=1000)
    planned = PlannedRun(experiment.record(), experiment.name, str(tmp_path), {})
    planned.place.folder.mkdir()
    first = ProgressFile(planned)
    first.start(experiment, 0)
    planned.update_progress()
    assert planned.speed == 0.0
    now[0] += 60  # to compile
    for step in range(1, 1 + WARM_STEPS):
        first.log(step, 1.0, None)
    for step in range(1 + WARM_STEPS, 101):
        now[0] += 0.1
        first.log(step, 1.0, None)
    planned.update_progress()
    assert planned.speed == pytest.approx(10, rel=0.01), "not 100 steps in 70 seconds"
    now[0] += 3600
    second = ProgressFile(planned)
    second.start(experiment, 100)
    planned.update_progress()
    assert planned.speed == pytest.approx(10, rel=0.01), "of the process before, for the first line"
    for step in range(101, 201):
        now[0] += 1.1
        second.log(step, 1.0, None)
    planned.update_progress()
    assert (planned.steps, planned.speed) == (200, pytest.approx(1 / 1.1, rel=0.01))
    assert (planned.place.folder / PROGRESS).exists()
