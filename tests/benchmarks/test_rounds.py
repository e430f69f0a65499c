"""Contestants in processes of their own: what they answer, and what is told if one cannot."""

import pytest

from benchmarks import rounds
from benchmarks.rivals import Missing
from benchmarks.rounds import answers, contest
from mecheval.core.errors import RunFailed

ARENA = """
import os
from benchmarks.rivals import Missing

def make(name, offset):
    print("whatever others print")
    if name == "absent":
        raise Missing("it is not installed")
    return lambda: offset + os.getpid() / (name != "broken")
"""


@pytest.fixture
def make(tmp_path, monkeypatch):
    """A maker that other processes can import, too."""
    (tmp_path / "arena_of_a_test.py").write_text(ARENA)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    import arena_of_a_test

    return arena_of_a_test.make


def test_everybody_has_a_process_and_every_round_a_time(make):
    found = contest(make, ["a", "absent", "b"], rounds=2, offset=0.5)
    assert found.absent == {"absent": "it is not installed"}
    assert len(set(found.values.values())) == 2
    assert list(found.times) == ["a", "b"]
    assert all(len(times.cpu) == len(times.wall) == 2 for times in found.times.values())


def test_one_that_fails_is_told_with_its_reason(make):
    with pytest.raises(RunFailed, match=r"^broken failed in its process: ZeroDivisionError: "):
        contest(make, ["broken"], rounds=1, offset=0.5)


def test_what_takes_long_is_run_twice_in_a_round_and_what_is_quick_more_often(monkeypatch):
    calls = []
    monkeypatch.setattr(rounds, "timed", lambda run: (run(), (7.0, 200.0))[1])
    asked = iter(["3\n", "1\n"])
    found = list(answers(lambda: lambda: calls.append(1) or float(len(calls)), {}, asked))
    assert found == [{"value": 3.0}, {"ms": [7.0, 200.0]}]
    assert len(calls) == 3 + 1 + 3  # 600 ms
    monkeypatch.setattr(rounds, "timed", lambda run: (run(), (7.0, 900.0))[1])
    list(answers(lambda: lambda: calls.append(1), {}, iter(["1\n", "1\n"])))
    assert len(calls) == 7 + 1 + 2


def test_one_that_is_missing_answers_once():
    def absent():
        raise Missing("why")

    assert list(answers(absent, {}, iter(["1\n"]))) == [{"missing": "why"}]
