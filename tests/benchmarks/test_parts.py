"""Every part of the benchmark runs, on tiny settings; nothing here depends on how fast it is."""

import json
import math
import sys

import pytest

from benchmarks import growth, interventions, memory, ops, rounds, steps, suite
from benchmarks.floors import FLOORS, floor_of
from benchmarks.measure import Times
from benchmarks.rounds import Contest, answers
from benchmarks.size import FULL, QUICK, Size

UNITS = {
    "documents": "×",
    "steps": "×",
    "startup": "×",
    "checkpoint": "%",
    "growth": "exponent",
    "memory": "×",
}


@pytest.fixture(autouse=True)
def not_apart(monkeypatch):
    """What has a process of its own is called here, by the same JSON; `test_record.py` and `test_rounds.py` have the
    processes."""

    def called(function, **arguments):
        return json.loads(json.dumps(function(**json.loads(json.dumps(arguments)))))

    def contest(make, names, rounds, warm=1, **given):
        first, times, absent = {}, {}, {}
        for name in names:
            asked = iter([f"{warm}\n"] + rounds * ["1\n"])
            first[name], *rest = json.loads(
                json.dumps(list(answers(make, {**given, "name": name}, asked)))
            )
            absent |= {name: first[name]["missing"]} if "missing" in first[name] else {}
            times |= (
                {name: Times(*zip(*(found["ms"] for found in rest), strict=True))} if rest else {}
            )
        return Contest(
            times,
            {name: found["value"] for name, found in first.items() if "value" in found},
            absent,
        )

    for module in (steps, ops):
        monkeypatch.setattr(module, "contest", contest)
    monkeypatch.setattr(rounds, "ROUND_MS", 0)
    for module in (growth, interventions, memory):
        monkeypatch.setattr(module, "apart", called)
    for module in (growth, memory):
        monkeypatch.setattr(
            module, "memory_mb", lambda: 0.0
        )  # a step here adds nothing to what is taken already


def lines_of(part, size):
    record = json.loads(json.dumps(suite.measure([part], size)))  # all of it is JSON
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


def test_a_rival_that_is_not_installed_is_skipped_with_its_reason(tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "mambapy", None)
    found = [
        line
        for line in lines_of("ops", tiny)
        if (line["what"], line["against"]) == ("selective scan", "mambapy")
    ]
    assert [line["ratio"] for line in found] == [None]
    assert "mambapy is not installed" in found[0]["note"]
    assert found[0]["verdict"] is None


def test_every_floor_is_asked_of_a_line_that_a_full_run_has():
    """By the names that parts give to their lines at full size; a floor with a wrong name would never be asked."""
    steps = {f"{name} d={width}" for name in FULL.architectures for width in FULL.widths}
    known = {
        "documents": {"ar_32pairs", "atr"},
        "steps": steps,
        "ops": {"selective scan", "delta rule"},
        "interventions": {"attention", "mamba"},
        "startup": {"mecheval --help"},
        "sweep": {"resume"},
        "growth": {f"{name}, length" for name in FULL.architectures},
        "guard": steps
        | {"attention evaluated", "attention grid", "AdamW", "recall documents", "decayed numbers"},
    }
    for part, what, _ in FLOORS:
        assert what in known[part], (part, what)


def test_every_floor_of_an_op_and_of_the_guard_is_asked(tiny):
    size = Size.of({**vars(tiny), "architectures": list(FULL.architectures)})
    for part in ("ops", "guard"):
        asked = {
            (part, line["what"].replace("d=8", "d=64"), line["against"])
            for line in lines_of(part, size)
        }
        assert {key for key in FLOORS if key[0] == part} <= asked


def test_a_machine_that_slows_down_has_the_same_share_of_its_limit():
    step, product = (
        Times(tuple(first * slower for slower in (1, 2, 1.3)), (0.0,) * 3) for first in (20.0, 25.0)
    )
    line = steps._share("attention", 8 * 10**8, step, product)
    assert [line.ratio, line.least, line.most] == pytest.approx([46.566] * 3, abs=1e-3)


def test_a_short_look_has_the_sizes_that_floors_are_for():
    for name in ("batch", "pairs", "vocab", "width", "grid_task", "drawn"):
        assert getattr(QUICK, name) == getattr(FULL, name)
    assert 64 in QUICK.widths


def test_checkpoints_and_losses_have_floors_at_every_width():
    assert floor_of("checkpoint", "mamba d=64", "training").verdict(2.5) == "above"
    assert floor_of("steps", "mamba d=16", "plain: losses").verdict(1e-6) == "ok"
    assert floor_of("steps", "mamba d=16", "plain") is None
