"""Contestants run in processes of their own, and a missing or failing one is reported."""

import pytest

from benchmarks import rounds
from benchmarks.rivals import Missing
from benchmarks.rounds import replies, run_contest
from mecheval.core.errors import RunFailed

pytestmark = pytest.mark.slow

CONTESTANTS = """
import os
from benchmarks.rivals import Missing

def build(name, offset):
    print("a package may print")
    if name == "absent":
        raise Missing("it is not installed")
    return lambda: offset + os.getpid() / (name != "broken")
"""


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Return a function that builds a contestant and that other processes can import."""
    (tmp_path / "contestants_of_a_test.py").write_text(CONTESTANTS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    import contestants_of_a_test

    return contestants_of_a_test.build


def test_every_contestant_has_a_process_and_a_time_for_every_round(build):
    contest = run_contest(build, ["a", "absent", "b"], rounds=2, offset=0.5)
    assert contest.missing == {"absent": "it is not installed"}
    assert len(set(contest.values.values())) == 2
    assert list(contest.times) == ["a", "b"]
    assert all(len(times.cpu) == len(times.wall) == 2 for times in contest.times.values())


def test_a_contestant_that_fails_raises_its_reason(build):
    with pytest.raises(RunFailed, match=r"^broken failed in its process: ZeroDivisionError: "):
        run_contest(build, ["broken"], rounds=1, offset=0.5)


def test_a_slow_contestant_runs_twice_in_a_round_and_a_fast_one_more_often(monkeypatch):
    calls = []
    monkeypatch.setattr(rounds, "time_call", lambda run: (run(), (7.0, 200.0))[1])
    requests = iter(["3\n", "1\n"])
    answers = list(replies(lambda: lambda: calls.append(1) or float(len(calls)), {}, requests))
    assert answers == [{"value": 3.0}, {"ms": [7.0, 200.0]}]
    assert len(calls) == 3 + 1 + 3  # 600 ms
    monkeypatch.setattr(rounds, "time_call", lambda run: (run(), (7.0, 900.0))[1])
    list(replies(lambda: lambda: calls.append(1), {}, iter(["1\n", "1\n"])))
    assert len(calls) == 7 + 1 + 2


def test_a_missing_contestant_replies_once():
    def absent():
        raise Missing("a reason")

    assert list(replies(absent, {}, iter(["1\n"]))) == [{"missing": "a reason"}]
