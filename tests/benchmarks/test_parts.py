"""Every part of the benchmark runs at a tiny size; no test here depends on speed."""

import json
import math
import sys

import pytest

from benchmarks import growth, interventions, memory, ops, rounds, steps, suite
from benchmarks.floors import FLOORS, LOSS_DIFFERENCE_IN_DOUBLE, floor_of
from benchmarks.measure import Times
from benchmarks.rounds import Contest, replies
from benchmarks.size import FULL, QUICK, Size

pytestmark = pytest.mark.slow

UNITS = {
    "documents": "×",
    "steps": "×",
    "startup": "×",
    "checkpoint": "%",
    "growth": "exponent",
    "memory": "×",
}


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Call here, by way of JSON, what the benchmarks run in a process of its own.

    `test_record.py` and `test_rounds.py` test the processes.
    """

    def run_isolated(function, **arguments):
        return as_json(function(**as_json(arguments)))

    def run_contest(build, names, rounds, warmup=1, **arguments):
        contest = Contest({}, {}, {})
        for name in names:
            requests = iter([f"{warmup}\n"] + rounds * ["1\n"])
            first, *others = as_json(list(replies(build, {**arguments, "name": name}, requests)))
            if "missing" in first:
                contest.missing[name] = first["missing"]
                continue
            if "value" in first:
                contest.values[name] = first["value"]
            contest.times[name] = Times(*zip(*(reply["ms"] for reply in others), strict=True))
        return contest

    for module in (steps, ops):
        monkeypatch.setattr(module, "run_contest", run_contest)
    monkeypatch.setattr(rounds, "ROUND_MS", 0)
    for module in (growth, interventions, memory):
        monkeypatch.setattr(module, "run_isolated", run_isolated)
    for module in (growth, memory):
        # a tiny step adds nothing to the memory that this process has already
        monkeypatch.setattr(module, "memory_mb", lambda: 0.0)


def as_json(value):
    return json.loads(json.dumps(value))


def lines_of(part, size):
    record = as_json(suite.measure([part], size))
    assert record["machine"]["gemm_peak_gflops"] > 0
    assert record["machine"]["threads"] == 1
    assert record["parts"][part]["caption"]
    return record["parts"][part]["lines"]


@pytest.mark.parametrize("part", [*suite.PARTS, *suite.GUARD])
def test_every_line_has_a_ratio_or_a_reason(part, tiny):
    lines = lines_of(part, tiny)
    assert lines
    for line in lines:
        if line["ratio"] is None:
            assert "not installed" in line["note"], line
        else:
            assert math.isfinite(line["ratio"]), line
    assert UNITS.get(part, lines[0]["unit"]) in {line["unit"] for line in lines}


def test_all_parts_but_the_guard_run_if_none_is_named_each_once_and_in_order():
    assert suite.select_parts([]) == list(suite.PARTS)
    assert suite.select_parts(["ops", "documents", "ops"]) == ["documents", "ops"]


def test_a_package_that_is_not_installed_is_skipped_with_its_reason(tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "mambapy", None)
    key = ("selective scan", "mambapy")
    (line,) = [line for line in lines_of("ops", tiny) if (line["what"], line["against"]) == key]
    assert line["ratio"] is None
    assert "mambapy is not installed" in line["note"]
    assert line["verdict"] is None


def test_every_floor_belongs_to_a_line_of_a_full_run():
    """Compare with the names of lines at full size: a floor with a wrong name has no effect."""
    steps = {f"{name} d={width}" for name in FULL.architectures for width in FULL.widths}
    steps |= {f"{name} d={FULL.width}" for name in FULL.newer}
    known = {
        "documents": {"ar_32pairs", "atr"},
        "steps": steps,
        "ops": {"selective scan", "delta rule", "linear recurrence"},
        "interventions": {"attention", "mamba"},
        "startup": {"mecheval --help"},
        "sweep": {"resume"},
        "growth": {f"{name}, length" for name in (*FULL.architectures, *FULL.newer_grown)},
        "guard": steps
        | {"attention evaluated", "attention grid", "AdamW", "recall documents", "decayed numbers"}
        | {"linear scan"},
    }
    for part, what, _ in FLOORS:
        assert what in known[part], (part, what)


def test_steps_of_newer_mixers_have_the_lines_that_their_floors_are_for(tiny):
    """One with a mixer of transformers, and one without any rival but the recurrence."""
    size = Size.of({**vars(tiny), "architectures": [], "newer": ["gated_delta_net", "gla"]})
    lines = lines_of("steps", size)
    keys = {("steps", line["what"].replace("d=8", "d=64"), line["against"]) for line in lines}
    assert {key for key in FLOORS if key[1] in ("gated_delta_net d=64", "gla d=64")} - keys == {
        ("guard", "gated_delta_net d=64", "plain")
    }
    apart = [line["ratio"] for line in lines if line["against"] == "plain: float64"]
    assert len(apart) == 2
    assert max(apart) <= LOSS_DIFFERENCE_IN_DOUBLE.value


def test_a_ratio_to_delta_net_is_that_of_our_time_to_its(tiny, monkeypatch):
    def run_contest(build, names, rounds, **arguments):
        assert "delta_net" in names
        ms = {name: Times((6.0,), (6.0,)) for name in names}
        ms["delta_net"] = Times((2.0,), (2.0,))
        return Contest(ms, {"ours": 1.0, "plain": 1.0}, {})

    monkeypatch.setattr(steps, "run_contest", run_contest)
    lines = list(steps.Setup("gla", 8, tiny).lines())
    (line,) = [line for line in lines if line.against == "delta_net"]
    assert line.ratio == 3.0
    assert floor_of("steps", "gla d=64", "delta_net").verdict(line.ratio) == "above"


def test_every_floor_of_an_op_and_of_the_guard_belongs_to_a_line(tiny):
    guarded = {"architectures": FULL.architectures, "newer_guarded": FULL.newer_guarded}
    size = Size.of({**vars(tiny), **guarded})
    for part in ("ops", "guard"):
        keys = {
            (part, line["what"].replace("d=8", "d=64"), line["against"])
            for line in lines_of(part, size)
        }
        assert {key for key in FLOORS if key[0] == part} <= keys


def test_a_change_of_the_clock_does_not_change_the_share_of_the_peak():
    step, product = (
        Times(tuple(first * slower for slower in (1, 2, 1.3)), (0.0,) * 3) for first in (20.0, 25.0)
    )
    line = steps._peak_share("attention", 8 * 10**8, step, product)
    assert [line.ratio, line.least, line.most] == pytest.approx([46.566] * 3, abs=1e-3)


def test_a_quick_run_has_the_sizes_that_floors_were_set_for():
    for name in ("batch", "pairs", "vocab", "width", "grid_task", "drawn"):
        assert getattr(QUICK, name) == getattr(FULL, name)
    assert 64 in QUICK.widths


def test_checkpoints_and_losses_have_floors_at_every_width():
    assert floor_of("checkpoint", "mamba d=64", "training").verdict(2.5) == "above"
    assert floor_of("steps", "mamba d=16", "plain: losses").verdict(1e-6) == "ok"
    assert floor_of("steps", "mamba d=16", "plain") is None
